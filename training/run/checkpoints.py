"""Checkpoints that survive a kill at any moment, and are checked before they are used.

In place of Keras's `BackupAndRestore`, which keeps one checkpoint, without checksums and without
the states of the seed generators: a run resumed from it has other dropout.
"""

import json
import re
import sys
import zipfile
import zlib

import numpy as np
from keras import ops

from training.command.disk import RunError, write_atomically

META = "meta"
# What zipfile and NumPy raise for an archive that is damaged or cut short.
DAMAGED = (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error)
_COUNTED = re.compile(r"\b(seed_generator|adam)_\d+\b")


class Checkpoints:
    """The newest checkpoints of one run, each a zip archive of NumPy arrays with checksums.

    A file appears under its name only when it is complete and on the disk.

    Args:
        directory: A `pathlib.Path`; made when it is needed.
        keep: How many of the newest are kept.
    """

    def __init__(self, directory, keep=3):
        self.directory, self.keep = directory, keep

    def save(self, step, variables, meta):
        """Writes a checkpoint, then deletes the oldest ones, and damaged ones of later steps.

        Args:
            step: int that orders the checkpoints.
            variables: {name: variable or NumPy array}.
            meta: A value that JSON can hold.
        """
        arrays = {name: ops.convert_to_numpy(variable) for name, variable in variables.items()}
        arrays[META] = np.array(json.dumps(meta))
        path = self.directory / f"step-{step:09d}.npz"
        write_atomically(path, lambda file: np.savez(file, **arrays))
        newest = [other for other in self.paths() if other <= path][-self.keep :]
        for other in {*self.paths()} - {*newest}:
            other.unlink(missing_ok=True)

    def paths(self):
        """The files of all checkpoints, oldest first."""
        return sorted(self.directory.glob("step-*.npz"))

    def newest(self):
        """The path of the newest undamaged checkpoint, or None if there are no checkpoints.

        Warns of those that it skips.

        Raises:
            RunError: If there are checkpoints and all of them are damaged.
        """
        for path in reversed(self.paths()):
            if (reason := damage(path)) is None:
                return path
            print(
                f"warning: {path} is damaged ({reason}): trying the one before it", file=sys.stderr
            )
        if self.paths():
            raise RunError(
                f"All checkpoints in {self.directory} are damaged: delete the folder to start again"
            )
        return None


def uncounted(name):
    """A variable's name without the number that Keras counts up in a process.

    >>> uncounted("model/0001/seed_generator_20/seed_generator_state")
    'model/0001/seed_generator/seed_generator_state'
    """
    return _COUNTED.sub(r"\1", name)


def damage(path):
    """Why a checkpoint cannot be read, or None; checks every checksum in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (bad := archive.testzip()) is not None:
                return f"the checksum of {bad} is wrong"
        read_meta(path)
    except DAMAGED as error:
        return error
    return None


def read_meta(path):
    """The meta data of a checkpoint."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return json.loads(archive[META].item())


def restore(path, variables):
    """Assigns the arrays of an undamaged checkpoint to the variables of the same names.

    Args:
        path: The file.
        variables: {name: variable}.

    Raises:
        RunError: If the names or shapes are those of another model.
    """
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if others := {*archive.files} ^ {META, *variables}:
            raise RunError(
                f"{path} and the model differ in {len(others)} weights, such as "
                f"{min(others)}: the checkpoint is from another model or version"
            )
        for name, variable in variables.items():
            array = archive[name]  # the only one in memory
            if array.shape != tuple(variable.shape):
                raise RunError(
                    f"{path} holds {name} with shape {array.shape}; expected "
                    f"{tuple(variable.shape)}: it is from another model"
                )
            variable.assign(array)


def state_of(model):
    """{name: variable} of all variables that a training changes, also of the seed generators."""
    metrics = {id(variable) for variable in model.metrics_variables}
    groups = {"model": model.variables, "optimizer": model.optimizer.variables}
    return {
        f"{name}/{i:04d}/{uncounted(variable.path)}": variable
        for name, variables in groups.items()
        for i, variable in enumerate(v for v in variables if id(v) not in metrics)
    }
