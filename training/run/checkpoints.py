"""Checkpoints that survive a kill at any moment and are never trusted unread."""

import io
import json
import zipfile

import numpy as np
import tensorflow as tf

from training.run.folder import RunError, write_atomically

META = "meta"


class Checkpoints:
    """The newest checkpoints of one run, each one file.

    A file appears under its name only when it is whole and on the disk. Every array in it carries
    a checksum (it is a zip archive of NumPy arrays), so that a file that was damaged afterwards
    is recognised, and the one before it used.

    Args:
        directory: A `pathlib.Path`; made when it is needed.
        keep: How many of the newest are kept.
    """

    def __init__(self, directory, keep=3):
        self.directory = directory
        self.keep = keep

    def save(self, step, arrays, meta):
        """Writes one, then deletes the oldest ones.

        Args:
            step: int that orders the checkpoints.
            arrays: {name: NumPy array}.
            meta: What goes to JSON.

        Raises:
            RunError: If it cannot be written; the checkpoints before it are untouched.
        """
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        content = io.BytesIO()
        np.savez(content, **arrays, **{META: text})
        path = self.directory / f"step-{step:09d}.npz"
        try:
            write_atomically(path, content.getbuffer())
        except RunError as error:
            paths = self.paths()
            last = f"the last good checkpoint is {paths[-1]}" if paths else "there is none before"
            raise RunError(f"{error}; {last}") from error
        for old in self.paths()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def paths(self):
        """The files there are, oldest first."""
        return sorted(self.directory.glob("step-*.npz"))

    def newest(self, tell=print):
        """The newest checkpoint that is whole.

        Args:
            tell: Called with a message for each damaged one that is passed over.

        Returns:
            `(arrays, meta)`, or None if there is none.

        Raises:
            RunError: If there are checkpoints and all of them are damaged.
        """
        for leftover in self.directory.glob(".step-*"):  # of a process that was killed
            leftover.unlink()
        paths = self.paths()
        for path in reversed(paths):
            try:
                return read(path)
            except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
                tell(f"{path} is damaged ({error}): going back to the checkpoint before it")
        if paths:
            raise RunError(
                f"All checkpoints in {self.directory} are damaged: delete it to begin anew"
            )
        return None


def read(path):
    """`(arrays, meta)` of a checkpoint file, every checksum of which was compared."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    meta = json.loads(arrays.pop(META).tobytes())
    return arrays, meta


def take(groups):
    """The arrays of `{group: list of variables}`, as they are now."""
    return {
        f"{group}/{index:04d}": value_of(variable)
        for group, variables in groups.items()
        for index, variable in enumerate(variables)
    }


def value_of(variable):
    """The NumPy value of a Keras variable, of the one value that it has on several devices."""
    return tf.convert_to_tensor(variable.value).numpy()


def put(groups, arrays):
    """Assigns what `take` took to variables of the same shapes.

    Raises:
        RunError: If the arrays are those of another model; then nothing was assigned.
    """
    pairs = [
        (f"{group}/{index:04d}", variable)
        for group, variables in groups.items()
        for index, variable in enumerate(variables)
    ]
    if sorted(name for name, _ in pairs) != sorted(arrays):
        raise RunError(
            f"The checkpoint holds {len(arrays)} arrays where this run has {len(pairs)} "
            "variables: it is of another model or version"
        )
    for name, variable in pairs:
        if arrays[name].shape != tuple(variable.shape):
            raise RunError(
                f"The checkpoint's array {name} has shape {arrays[name].shape}, this run's "
                f"variable {variable.path} has {tuple(variable.shape)}: it is of another model"
            )
    for name, variable in pairs:
        variable.assign(arrays[name])
