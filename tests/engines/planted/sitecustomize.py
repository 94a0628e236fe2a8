"""Faults planted into workers, by the environment; Python imports this module when it starts.

With DPTREES_FAULTS=FOLDER, every bundle of every process leaves a note of its stage in the folder,
and one of the processor that OpenBLAS emulates, and every file that a release writes leaves its
name and checksum, so that a test sees all that was ever drawn, even what was replaced or swept
later. Files in the folder plant faults:

    sleep     seconds that every bundle waits before it begins
    straggle  seconds that every bundle waits beside, in the one process that first asks
    hold      a step: every bundle of its stage waits until another is named, or none
    raise     how many different bundles of every stage fail, each once, after all their work
    python    the version that processes of workers say they run

Without the variable nothing happens.
"""

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import os
import sys
import time
from pathlib import Path

FOLDER = os.environ.get("DPTREES_FAULTS", "")


def setting(name):
    """The number in a file of the folder, 0 without one."""
    try:
        return float(Path(FOLDER, name).read_text())
    except (FileNotFoundError, ValueError):
        return 0.0


def held(stage):
    """Whether a bundle of a stage is to wait on."""
    try:
        step = Path(FOLDER, "hold").read_text()
    except FileNotFoundError:
        return False
    return bool(step) and step in stage


def note(name, line):
    """Appends a line to a file of the folder, whole among other processes."""
    handle = os.open(os.path.join(FOLDER, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def straggles():
    """Whether this process is the slow one: the first that asks."""
    path = Path(FOLDER, "straggler")
    with contextlib.suppress(FileExistsError), path.open("x") as named:
        named.write(str(os.getpid()))
    return path.read_text() == str(os.getpid())


def stage_of(processor):
    """The steps that a bundle runs through; the same for every run of a job."""
    transforms = processor.process_bundle_descriptor.transforms.values()
    return " ".join(sorted(each.unique_name.replace(" ", "_") for each in transforms))


def fails(stage, contents):
    """Whether a bundle is to fail: if it is new, and few enough of its stage have failed."""
    name = f"raised-{hashlib.sha256(stage.encode()).hexdigest()[:16]}-"
    if len([each for each in os.listdir(FOLDER) if each.startswith(name)]) >= setting("raise"):
        return False
    try:
        Path(FOLDER, name + contents).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def plant_in_bundles(module):
    """Makes workers note, wait and fail."""
    whole, part = module.BundleProcessor.process_bundle, module.DataInputOperation.process_encoded

    def process_bundle(self, *arguments, **named):
        stage = stage_of(self)
        note("begun", stage)
        note("processors", f"{os.environ.get('OPENBLAS_CORETYPE', 'native')} {stage}")
        while held(stage):
            time.sleep(0.01)
        time.sleep(setting("sleep"))
        if setting("straggle") and straggles():
            time.sleep(setting("straggle"))
        self.planted = hashlib.sha256()
        for operation in self.ops.values():
            if isinstance(operation, module.DataInputOperation):
                operation.planted = self.planted
        result = whole(self, *arguments, **named)
        if fails(stage, self.planted.hexdigest()[:16]):
            note("raised", stage)
            raise RuntimeError("planted fault")
        return result

    def process_encoded(self, elements):
        self.planted.update(elements)
        part(self, elements)

    module.BundleProcessor.process_bundle = process_bundle
    module.DataInputOperation.process_encoded = process_encoded


def plant_in_files(module):
    """Makes workers note every file that they write."""

    def noting(write):
        def noted(path, data, **options):
            note("written", f"{os.path.basename(path)} {hashlib.sha256(data).hexdigest()}")
            return write(path, data, **options)

        return noted

    module.write_whole = noting(module.write_whole)
    module.write_once = noting(module.write_once)


def plant_in_preflight(module):
    """Makes processes of workers say that they run another Python."""
    is_worker = any("sdk_worker" in each for each in sys.orig_argv)
    if is_worker and setting("python"):
        module.python_minor = lambda: f"{setting('python'):g}"


PLANTS = {
    "apache_beam.runners.worker.bundle_processor": plant_in_bundles,
    "dptrees.transforms.folder.files": plant_in_files,
    "dptrees.transforms.preflight": plant_in_preflight,
}


class Finder(importlib.abc.MetaPathFinder):
    """Changes the modules of PLANTS right after they are imported."""

    def find_spec(self, name, path, target=None):
        if name not in PLANTS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                PLANTS[name](module)

            spec.loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.meta_path.insert(0, Finder())
