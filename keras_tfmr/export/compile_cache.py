"""What XLA compiled for an export: it travels in the export, and is used where it may run.

TensorFlow writes every program it compiles into the folder that `TF_XLA_FLAGS` names, and takes it
from there the next time. It does not ask whether a program is for this processor: it warns, and
runs it. So an export keeps the programs in a folder for each kind of processor and version of
TensorFlow, and hands out none but those of the very same.
"""

import hashlib
import os
import pathlib
import platform
import re
import shutil
import uuid

FOLDER = pathlib.Path("assets.extra", "xla_cache")
_FLAG = "--tf_xla_persistent_cache_directory="


def key():
    """Where a compiled program may run: TensorFlow's version and the processor's features.

    `serving/deploy/config/serve.sh` makes the same key without Python.
    """
    import tensorflow as tf

    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []  # no Linux: the machine's own name has to do
    features = [line for line in lines if re.match(r"(flags|Features)\s*:", line)]
    text = features[0].partition(":")[2].strip() if features else platform.processor()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{tf.__version__}-{platform.machine()}-{digest}"


def flags(folder):
    """The value of `TF_XLA_FLAGS` with which a process keeps its compiled programs in a folder.

    TensorFlow reads it once, at the first graph it builds.
    """
    others = os.environ.get("TF_XLA_FLAGS", "").split()
    return " ".join([*(flag for flag in others if not flag.startswith(_FLAG)), f"{_FLAG}{folder}"])


def folder_in_use():
    """The folder in which this process keeps compiled programs, or None."""
    for flag in os.environ.get("TF_XLA_FLAGS", "").split():
        if flag.startswith(_FLAG):
            return pathlib.Path(flag.removeprefix(_FLAG))
    return None


def adopt(version):
    """Makes the programs of an export, those for this machine, available to this process.

    Args:
        version: the export's folder.

    Returns:
        How many there are; 0 where it has none for this machine or this process keeps none.
    """
    folder = folder_in_use()
    if folder is None:
        return 0
    return copy(pathlib.Path(version) / FOLDER / key(), folder)


def copy(source, target):
    """Copies the programs that `target` lacks; a reader meets each whole or not at all."""
    programs = sorted(pathlib.Path(source).glob("*.pb"))
    if programs:
        target.mkdir(parents=True, exist_ok=True)
    for program in programs:
        if not (target / program.name).exists():
            unfinished = target / f".{uuid.uuid4().hex}"
            shutil.copyfile(program, unfinished)
            os.replace(unfinished, target / program.name)
    return len(programs)
