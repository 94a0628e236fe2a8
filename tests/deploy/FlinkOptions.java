// Reads a Flink configuration with Flink's own classes: which of its keys Flink does not know, and
// into what it divides the memory of a task manager and of a job manager. Run as a single file:
//     java -cp 'LIB/*' FlinkOptions.java JOB_MANAGER_MEMORY TASK_MANAGER_MEMORY KEY=VALUE...

import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.HashSet;
import java.util.Set;
import java.util.jar.JarFile;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.FallbackKey;
import org.apache.flink.configuration.JobManagerOptions;
import org.apache.flink.runtime.clusterframework.TaskExecutorProcessUtils;
import org.apache.flink.runtime.jobmanager.JobManagerProcessUtils;

public class FlinkOptions {
    static Set<String> known() throws Exception {
        Set<String> found = new HashSet<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!new File(path).getName().startsWith("flink-")) continue;
            try (JarFile jar = new JarFile(path)) {
                for (var entry : java.util.Collections.list(jar.entries())) {
                    String name = entry.getName();
                    if (!name.matches("org/apache/flink/.*Options\\.class")) continue;
                    add(found, name.replace('/', '.').replace(".class", ""));
                }
            }
        }
        return found;
    }

    static void add(Set<String> found, String name) {
        try {
            for (Field field : Class.forName(name).getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) continue;
                if (field.getType() != ConfigOption.class) continue;
                field.setAccessible(true);
                ConfigOption<?> option = (ConfigOption<?>) field.get(null);
                found.add(option.key());
                for (FallbackKey key : option.fallbackKeys()) found.add(key.getKey());
            }
        } catch (ReflectiveOperationException | LinkageError absent) {
            // A class of what is not installed.
        }
    }

    public static void main(String[] arguments) throws Exception {
        Set<String> known = known();
        Configuration read = new Configuration();
        for (int index = 2; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            read.setString(pair[0], pair[1]);
            if (!known.contains(pair[0])) System.out.println("unknown " + pair[0]);
        }
        Configuration manager = new Configuration(read);
        manager.setString("jobmanager.memory.process.size", arguments[0]);
        System.out.println("jobmanager " + JobManagerProcessUtils
                .processSpecFromConfigWithNewOptionToInterpretLegacyHeap(
                        manager, JobManagerOptions.JVM_HEAP_MEMORY)
                .getJvmHeapMemorySize().getMebiBytes());
        Configuration worker = new Configuration(read);
        worker.setString("taskmanager.memory.process.size", arguments[1]);
        System.out.println("taskmanager " + TaskExecutorProcessUtils
                .processSpecFromConfig(worker).getTaskHeapSize().getMebiBytes());
    }
}
