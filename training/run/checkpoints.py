"""Checkpoints that survive a kill at any moment, and are checked before they are used."""

import json
import zipfile

import numpy as np
import tensorflow as tf

from training.run.files import RunError, write_atomically

META = "meta"


class Checkpoints:
    """The newest checkpoints of one run, each one file.

    A file appears under its name only when it is complete and on the disk. It is a zip archive of
    NumPy arrays, each with a checksum: a file that was damaged later is recognised, and the one
    before it is used. Arrays are written and read one after the other, so that memory never holds
    a second copy of all of them.

    Args:
        directory: A `pathlib.Path`; made when it is needed.
        keep: How many of the newest are kept.
    """

    def __init__(self, directory, keep=3):
        self.directory = directory
        self.keep = keep

    def save(self, step, variables, meta):
        """Writes a checkpoint, then deletes the oldest ones.

        Args:
            step: int that orders the checkpoints.
            variables: {name: variable or NumPy array}.
            meta: A value that JSON can hold.

        Raises:
            RunError: If it cannot be written; earlier checkpoints are untouched.
        """

        def write(file):
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, variable in variables.items():
                    _write_array(archive, name, value_of(variable))
                _write_array(archive, META, np.frombuffer(json.dumps(meta).encode(), np.uint8))

        path = self.directory / f"step-{step:09d}.npz"
        try:
            write_atomically(path, write)
        except RunError as error:
            paths = self.paths()
            last = (
                f"the last good checkpoint is {paths[-1]}" if paths else "there is no earlier one"
            )
            raise RunError(f"{error}; {last}") from error
        for old in self.paths()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def paths(self):
        """The files of all checkpoints, oldest first."""
        return sorted(self.directory.glob("step-*.npz"))

    def clean(self):
        """Deletes the partial files of a process that was killed while it wrote."""
        for leftover in self.directory.glob(".step-*"):
            leftover.unlink()

    def newest(self, tell=print):
        """The path of the newest undamaged checkpoint, or None if there are no checkpoints.

        Args:
            tell: Called with a message for each damaged checkpoint.

        Raises:
            RunError: If there are checkpoints and all of them are damaged.
        """
        paths = self.paths()
        for path in reversed(paths):
            if (reason := damage(path)) is None:
                return path
            tell(f"{path} is damaged ({reason}): trying the checkpoint before it")
        if paths:
            raise RunError(
                f"All checkpoints in {self.directory} are damaged: delete the folder to start again"
            )
        return None


def damage(path):
    """Why a checkpoint cannot be read, or None; checks every checksum in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (bad := archive.testzip()) is not None:
                return f"the checksum of {bad} is wrong"
            json.loads(_read_array(archive, META).tobytes())
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        return error
    return None


def restore(path, variables):
    """Assigns the arrays of an undamaged checkpoint to the variables of the same names.

    Args:
        path: The file.
        variables: {name: variable}.

    Returns:
        The meta data.

    Raises:
        RunError: If the names or shapes are those of another model; no variable is changed then.
    """
    with zipfile.ZipFile(path) as archive:
        shapes = _shapes(archive)
        if missing := sorted(variables.keys() - shapes.keys()):
            raise RunError(
                f"{path} lacks {missing[0]} ({len(missing)} of {len(variables)} weights are "
                "missing): it is from another model or version"
            )
        if extra := sorted(shapes.keys() - variables.keys()):
            raise RunError(
                f"{path} holds {extra[0]}, which this run does not have ({len(extra)} in all): it "
                "is from another model or version"
            )
        for name, variable in variables.items():
            if shapes[name] != tuple(variable.shape):
                raise RunError(
                    f"{path} holds {name} with shape {shapes[name]}; expected "
                    f"{tuple(variable.shape)}: it is from another model"
                )
        for name, variable in variables.items():
            variable.assign(_read_array(archive, name))
        return json.loads(_read_array(archive, META).tobytes())


def read(path):
    """`({name: array}, meta)` of a checkpoint file."""
    with zipfile.ZipFile(path) as archive:
        arrays = {name: _read_array(archive, name) for name in (*_shapes(archive), META)}
    meta = json.loads(arrays.pop(META).tobytes())
    return arrays, meta


def _write_array(archive, name, array):
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def _read_array(archive, name):
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _shapes(archive):
    """{name: shape} of the arrays, read from their headers alone."""
    shapes = {}
    for member in archive.namelist():
        name = member.removesuffix(".npy")
        if name != META:
            with archive.open(member) as file:
                np.lib.format.read_magic(file)
                shapes[name] = np.lib.format.read_array_header_1_0(file)[0]
    return shapes


def value_of(variable):
    """The NumPy value of a variable, which has the same value on all devices."""
    if isinstance(variable, np.ndarray):
        return variable
    value = getattr(variable, "value", variable)
    return (
        tf.convert_to_tensor(value).numpy()
        if tf.is_tensor(value) or isinstance(value, (tf.Variable, tf.distribute.DistributedValues))
        else np.asarray(value)
    )
