"""Compiled programs in an export, for servers on the same kind of processor.

TensorFlow writes every program that XLA compiles into the folder that `TF_XLA_FLAGS` names, and
loads it from there the next time. It only warns if a program is for another processor, and runs it
anyway. An export therefore has a folder for each kind of processor and version of TensorFlow, and
only programs from the matching folder are used.
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
    """The name of a folder of programs, from TensorFlow's version and the processor's features.

    `serving/deploy/config/serve.sh` makes the same name without Python.
    """
    import tensorflow as tf

    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []  # not Linux: the name of the processor is used instead
    features = [line for line in lines if re.match(r"(flags|Features)\s*:", line)]
    text = features[0].partition(":")[2].strip() if features else platform.processor()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{tf.__version__}-{platform.machine()}-{digest}"


def flags(folder):
    """The value of `TF_XLA_FLAGS` that makes a process keep its compiled programs in a folder.

    TensorFlow reads it once, when it builds its first graph.
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
    """Makes an export's programs for this kind of machine available to this process.

    Args:
        version: The export's folder.

    Returns:
        The number of programs; 0 if there are none, or if this process keeps no programs.
    """
    folder = folder_in_use()
    if folder is None:
        return 0
    return copy(pathlib.Path(version) / FOLDER / key(), folder)


def copy(source, target):
    """Copies the programs that `target` lacks, each atomically."""
    programs = sorted(pathlib.Path(source).glob("*.pb"))
    if programs:
        target.mkdir(parents=True, exist_ok=True)
    for program in programs:
        if not (target / program.name).exists():
            unfinished = target / f".{uuid.uuid4().hex}"
            shutil.copyfile(program, unfinished)
            os.replace(unfinished, target / program.name)
    return len(programs)
