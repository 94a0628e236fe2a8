"""The manifests of deploy/kubernetes: fields, rights, and that what belongs together agrees."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dptrees.pipelines.process import ExitCode
from tests.deploy.manifests import (
    DEPLOY,
    KUBERNETES,
    Manifest,
    faults,
    gib,
    kustomizations,
    manifest,
    manifest_files,
    manifests,
    names,
    pods,
    rendered,
)

PROJECT = DEPLOY.parent
FILES = [path for path in manifest_files() if path.name != "engine.yaml"]
FOLDERS = kustomizations()


def test_fields() -> None:
    found = {path: [*map(faults, manifests(path))] for path in FILES}
    assert {str(path): each for path, each in found.items() if any(each)} == {}


POOL = "spec/taskManager/podTemplate/spec/initContainers/0"
# A file and a kind in it, the place in the manifest, and what is planted there; None: it is gone.
PLANTED: dict[str, tuple[str, str, str, object]] = {
    "a misspelt field": ("daily/cronjob.yaml", "CronJob", "spec/concurencyPolicy", "Forbid"),
    "a misspelt field of a container": (
        *("session/flink.yaml", "FlinkDeployment"),
        *(f"{POOL}/restartPolice", "Always"),
    ),
    "a wrong type": (
        *("daily/cronjob.yaml", "CronJob"),
        *("spec/jobTemplate/spec/backoffLimit", "eight"),
    ),
    "a field that an operator would drop": (
        *("session/flink.yaml", "FlinkDeployment"),
        *("spec/serviceAccountName", "flink"),
    ),
    "a number where Flink's operator wants a text": (
        *("session/flink.yaml", "FlinkDeployment"),
        *("spec/flinkConfiguration/blob.server.port", 6124),
    ),
    "a container without a name": (
        *("session/job-server.yaml", "Deployment"),
        *("spec/template/spec/containers/0/name", None),
    ),
    "memory as Spark does not write it": (
        *("spark/application.yaml", "SparkApplication"),
        *("spec/executor/memory", "1Gi"),
    ),
    "an unknown version": (
        *("spark/access.yaml", "Role"),
        *("apiVersion", "rbac.authorization.k8s.io/v2"),
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found(fault: str) -> None:
    path, kind, place, planted = PLANTED[fault]
    value: Any = copy.deepcopy(manifest(path, kind))
    assert faults(value) == []
    *above, name = place.split("/")
    field = value
    for each in above:
        field = field[int(each) if isinstance(field, list) else each]
    if planted is None:
        del field[name]
    else:
        field[name] = planted
    assert faults(value) != []


def _pool(value: Manifest) -> Manifest:
    """The worker pool of a Flink cluster or of Spark's executors."""
    spec = value["spec"]
    template = spec["taskManager"]["podTemplate"] if "taskManager" in spec else None
    template = template or spec["executor"]["template"]
    (found,) = template["spec"]["initContainers"]
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=names(FOLDERS))
def test_kustomization(folder: Path) -> None:
    """What kustomize makes of a folder is valid too."""
    made = rendered(folder)
    assert [fault for each in made for fault in faults(each)] == []
    assert {each["metadata"].get("namespace", "dptrees") for each in made} == {"dptrees"}


def test_kustomizations_use_every_file() -> None:
    apart = {"spark/executor-pod.yaml", "spark/driver-pod.yaml", "spark/spark-submit.conf"}
    for folder in [*FOLDERS, *kustomizations("Component")]:
        found = yaml.safe_load((folder / "kustomization.yaml").read_text())
        used = {*found.get("resources", ()), *found.get("configurations", ())}
        used |= {each["path"] for each in found.get("patches", ())}
        for made in found.get("configMapGenerator", ()):
            used |= set(made["files"])
        there = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
        there -= {Path(each).name for each in apart if Path(each).parent.name == folder.name}
        assert there == {each for each in used if "/" not in each}


def _containers(pod: Manifest) -> list[Manifest]:
    spec = pod.get("spec", {})
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_pods_are_restricted(path: Path) -> None:
    """Kubernetes' standard `restricted`, which the namespace enforces, and what the key needs."""
    for value in manifests(path):
        found = list(pods(value))
        for pod in found[1:] if value["kind"] == "FlinkDeployment" else found:
            shared = found[0] if value["kind"] == "FlinkDeployment" else pod
            security = shared["spec"]["securityContext"]
            assert security["runAsNonRoot"] is True
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in [*_containers(shared), *_containers(pod)]:
                own = container.get("securityContext")
                if own is None:  # completed by the operator, with what all its pods share
                    assert container["name"] == "flink-main-container"
                    assert "image" not in container
                    continue
                assert own["allowPrivilegeEscalation"] is False
                assert own["capabilities"] == {"drop": ["ALL"]}
                if "image" in container:
                    assert own["readOnlyRootFilesystem"] is True
                    mounted = {each["mountPath"] for each in container["volumeMounts"]}
                    assert "/tmp" in mounted
                    assert "memory" in container["resources"]["limits"]


def disk_faults(value: Manifest) -> list[str]:
    """Volumes without a limit, and containers that fill one without asking for as much disk."""
    found = []
    for pod in pods(value):
        sizes = {
            volume["name"]: volume["emptyDir"].get("sizeLimit")
            for volume in pod.get("spec", {}).get("volumes", ())
            if "emptyDir" in volume
        }
        found += [f"{name}: no sizeLimit" for name, size in sizes.items() if size is None]
        for container in _containers(pod):
            mounted = [each["name"] for each in container.get("volumeMounts", ())]
            filled = sum(gib(sizes[name]) for name in mounted if sizes.get(name))
            for bound in ("requests", "limits"):
                disk = container.get("resources", {}).get(bound, {}).get("ephemeral-storage", "0Gi")
                if gib(disk) < filled:
                    found.append(f"{container['name']}: {bound} {disk}, fills {filled} GiB")
    return found


def test_what_fills_disks_is_limited() -> None:
    found = {folder: [*map(disk_faults, rendered(folder))] for folder in FOLDERS}
    assert {str(folder): each for folder, each in found.items() if any(each)} == {}


def test_every_engine_pod_has_a_disk_of_its_own() -> None:
    """No engine writes into the layer of its container, which has no limit of its own."""
    session = manifest("session/flink.yaml", "FlinkDeployment")
    application = manifest("application/flink.yaml", "FlinkDeployment")
    spark = manifest("spark/application.yaml", "SparkApplication")
    # Spark takes a volume of this name, wherever it is mounted.
    for value, volume in ((session, "flink-tmp"), (application, "flink-tmp"), (spark, "spark-")):
        for pod in list(pods(value))[-2:]:
            (main,) = pod["spec"]["containers"]
            assert any(each["name"].startswith(volume) for each in main["volumeMounts"])


def test_planted_faults_of_disks_are_found() -> None:
    value = manifest("session/flink.yaml", "FlinkDeployment")
    pool = _pool(value)
    assert disk_faults(value) == []
    pool["resources"]["limits"].pop("ephemeral-storage")
    assert disk_faults(value) == ["worker-pool: limits 0Gi, fills 10.0 GiB"]
    value["spec"]["taskManager"]["podTemplate"]["spec"]["volumes"][1]["emptyDir"] = {}
    assert disk_faults(value) == ["tmp: no sizeLimit"]


@pytest.mark.parametrize("path", FILES, ids=names(FILES))
def test_what_hangs_is_started_again(path: Path) -> None:
    """Servers have both probes; a job ends by its deadline."""
    for value in manifests(path):
        for pod in pods(value):
            for container in _containers(pod):
                always = container.get("restartPolicy") == "Always"
                if always or value["kind"] == "Deployment":
                    assert {"livenessProbe", "readinessProbe"} <= container.keys()
        if value["kind"] == "FlinkDeployment":
            for role in ("jobManager", "taskManager"):
                (main,) = value["spec"][role]["podTemplate"]["spec"]["containers"]
                assert {"livenessProbe", "readinessProbe"} <= main.keys()
        if value["kind"] == "CronJob":
            assert value["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 0


def test_no_secret_is_written_down() -> None:
    """The key and the password come from Secrets, of which no file here is one."""
    for path in KUBERNETES.rglob("*.yaml"):
        for value in manifests(path):
            assert value.get("kind") != "Secret"
            for pod in pods(value) if "kind" in value and path.name != "engine.yaml" else ():
                for container in _containers(pod):
                    for entry in container.get("env", []):
                        if entry["name"] in ("DPTREES_KEY", "PGPASSWORD"):
                            assert "secretKeyRef" in entry["valueFrom"]


def test_pool_is_the_same_everywhere() -> None:
    flink = [
        manifest(f"{each}/flink.yaml", "FlinkDeployment") for each in ("session", "application")
    ]
    spark = manifest("spark/application.yaml", "SparkApplication")
    assert _pool(flink[0]) == _pool(flink[1]) == _pool(spark)
    session, application = (each["spec"] for each in flink)
    assert session["taskManager"] == application["taskManager"] | {
        "replicas": session["taskManager"]["replicas"]
    }
    assert session["flinkConfiguration"] == application["flinkConfiguration"]
    for role in ("driver", "executor"):
        pod = manifest(f"spark/{role}-pod.yaml", "Pod")
        assert pod["spec"] == spark["spec"][role]["template"]["spec"]


def test_no_policy_lets_a_pool_be_asked_from_outside() -> None:
    policies = manifests(KUBERNETES / "base" / "network.yaml")
    (closed,) = (each["spec"] for each in policies if each["spec"]["podSelector"] == {})
    assert closed == {"podSelector": {}, "policyTypes": ["Ingress"]}
    for each in policies:
        for rule in each["spec"].get("ingress", []):
            assert rule["from"]
            assert 50000 not in [port["port"] for port in rule["ports"]]
    flink = manifest("session/flink.yaml", "FlinkDeployment")["spec"]["flinkConfiguration"]
    listed = {
        port["port"]
        for each in policies
        if each["metadata"]["name"] == "flink"
        for rule in each["spec"]["ingress"]
        for port in rule["ports"]
    }
    assert {int(flink[name]) for name in flink if name.endswith(".port")} < listed


def test_spark_submit_has_what_the_operator_has() -> None:
    lines = (KUBERNETES / "spark" / "spark-submit.conf").read_text().splitlines()
    found = dict(line.split() for line in lines if line and not line.startswith("#"))
    spec = manifest("spark/application.yaml", "SparkApplication")["spec"]
    same = {
        "spark.kubernetes.container.image": spec["image"],
        "spark.executor.instances": str(spec["executor"]["instances"]),
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        "spark.kubernetes.authenticate.executor.serviceAccountName": "launcher",
        **{f"spark.{role}.cores": str(spec[role]["cores"]) for role in ("driver", "executor")},
        **{f"spark.{role}.memory": spec[role]["memory"] for role in ("driver", "executor")},
        **spec["sparkConf"],
    }
    assert same.items() <= found.items()
    for role in ("driver", "executor"):
        template = PROJECT / found[f"spark.kubernetes.{role}.podTemplateFile"]
        container = found[f"spark.kubernetes.{role}.podTemplateContainerName"]
        (pod,) = manifests(template)
        assert container in [each["name"] for each in pod["spec"]["containers"]]


def test_versions_are_those_of_the_engines() -> None:
    beam = re.findall(r"<beam\.version>(.*?)<", (DEPLOY / "flink" / "pom.xml").read_text())
    spark = re.findall(r"<spark\.version>(.*?)<", (DEPLOY / "spark" / "pom.xml").read_text())
    flink = re.findall(r"<flink\.version>(.*?)<", (DEPLOY / "flink" / "pom.xml").read_text())
    minor = flink[0].rpartition(".")[0]
    server = next(pods(manifest("session/job-server.yaml", "Deployment")))
    image = server["spec"]["containers"][0]["image"]
    assert image == f"apache/beam_flink{minor}_job_server:{beam[0]}"
    for each in ("session", "application"):
        spec = manifest(f"{each}/flink.yaml", "FlinkDeployment")["spec"]
        # The version of the jars that the tests run, and no later one.
        assert spec["image"] == f"flink:{flink[0]}"
        assert spec["flinkVersion"] == f"v{minor.replace('.', '_')}"
    spec = manifest("spark/application.yaml", "SparkApplication")["spec"]
    assert (spec["sparkVersion"], spec["image"]) == (spark[0], f"apache/spark:{spark[0]}")


def test_pod_failures_follow_the_exit_codes() -> None:
    job = manifest("daily/cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]
    template = job["template"]["spec"]
    # Else Kubernetes takes no policy.
    assert template["restartPolicy"] == "Never"
    (container,) = template["containers"]

    def action(code: int) -> str:
        for rule in job["podFailurePolicy"]["rules"]:
            codes = rule.get("onExitCodes")
            if codes is None:
                continue
            assert codes["containerName"] == container["name"]
            if (code in codes["values"]) == (codes["operator"] == "In"):
                return str(rule["action"])
        return ""

    assert {code.name: action(code) for code in ExitCode if code} == {
        "FAULT": "FailJob",
        "MISTAKE": "FailJob",
        "AGAIN": "Count",
        "STOPPED": "Count",
        "TERMINATED": "Count",
    }
    assert action(134) == action(137) == "Count"
    # docs/exit-codes.md: it waits up to 20 s until its engine has cancelled the job.
    assert template["terminationGracePeriodSeconds"] > 20


def test_engine_of_the_daily_release() -> None:
    """The patch adds options to the command and changes nothing; they lead to the session."""
    base = manifest("daily/cronjob.yaml", "CronJob")
    patch = manifest("daily-on-flink/engine.yaml", "CronJob")
    assert patch["metadata"] == base["metadata"]
    (own,), (patched,) = (next(pods(each))["spec"]["containers"] for each in (base, patch))
    assert patched["name"] == own["name"]
    assert patched["args"][: len(own["args"])] == own["args"]
    options = dict(each[2:].split("=") for each in patched["args"][len(own["args"]) :])
    session = manifest("session/flink.yaml", "FlinkDeployment")
    service = manifest("session/job-server.yaml", "Service")
    assert options["job_endpoint"] == f"{service['metadata']['name']}:8099"
    assert options["flink_master"] == f"{session['metadata']['name']}-rest:8081"
    (variable,) = patched["env"]
    assert options["parallelism"] == f"$({variable['name']})"
    assert variable["valueFrom"] == {
        "configMapKeyRef": {"name": "dptrees-session", "key": "workers"}
    }
    probe = _pool(session)["startupProbe"]["tcpSocket"]
    assert options["environment_config"] == f"localhost:{probe['port']}"


def test_daily_configuration_is_that_of_the_example() -> None:
    here = yaml.safe_load((KUBERNETES / "daily" / "daily.yaml").read_text())
    example = yaml.safe_load((PROJECT / "examples" / "daily.yaml").read_text())
    assert {name for name in here.keys() | example if here.get(name) != example.get(name)} == {
        "key",
        "key_file",
        "ledger",
    }
