"""Which process may write in a run folder, and whether a run is resumed in it or starts."""

import contextlib
import fcntl
import json
import os
import shutil

from training.corpus import store
from training.run.files import RunError, explained


class Claim:
    """A run folder that one process holds and writes.

    Args:
        folder: A `RunFolder`; made if it is missing.

    Attributes:
        writes: Whether this process may write in the folder.

    Raises:
        RunError: If the folder cannot be made or written, or another process is training in it.
    """

    writes = True

    def __init__(self, folder):
        self.folder = folder
        self.scratch = folder.encoded  # where the batches keep what grows with the corpus
        self.resumes = False  # whether an unfinished run is resumed; `begin` sets it
        with explained(folder.path):
            folder.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise RunError(f"Another process is training in {folder.path}") from error

    def close(self):
        """Releases the folder for other processes."""
        os.close(self._lock)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def begin(self, training, arguments, *, overwrite=False):
        """Prepares the folder for a run with these settings; says whether a run is resumed.

        Args:
            training: {setting: value} of the settings that the weights depend on.
            arguments: {setting: value} of all settings.
            overwrite: Whether to delete an earlier run. An unfinished run with exactly these
                arguments is kept, because whoever repeats the command of a killed run wants its
                checkpoints.

        Returns:
            True if an unfinished run with the same settings is resumed.

        Raises:
            RunError: If the folder holds a finished run, a run with other settings, or files that
                a run would overwrite but did not write.
        """
        path = self.folder.path
        before = self._config_before()
        if before is None:
            return False
        finished = self.folder.results.exists()
        changes = differences(before["arguments"], arguments).keys() - {"run", "overwrite"}
        if overwrite and (finished or changes):
            self.clear()
            return False
        if finished:
            raise RunError(
                f"{path} holds a finished run: choose another --run, or give --overwrite"
            )
        if others := differences(before["training"], training):
            raise RunError(
                f"{path} holds an unfinished run with other settings ({in_words(others)}): "
                "repeat its command, choose another --run, or give --overwrite"
                f"{_of_precision(others)}"
            )
        self.resumes = True
        return True

    def keep_to(self, corpus, *, overwrite=False):
        """Makes sure that a resumed run learns from the corpus that it began with.

        Args:
            corpus: Counts and checksums, as config.json has them.
            overwrite: Whether to start again with another corpus.

        Raises:
            RunError: If the corpus has changed.
        """
        if not self.resumes:
            return
        others = differences(self._config_before()["corpus"], corpus)
        if not others:
            return
        if not overwrite:
            raise RunError(
                f"The corpus is not the one that the run in {self.folder.path} began with "
                f"({in_words(others)}): choose another --run, or give --overwrite"
            )
        self.clear()

    def _config_before(self):
        """The config.json of the run in the folder, or None if there is no run.

        Raises:
            RunError: If there is no run, but a file that a run would overwrite.
        """
        if self.folder.config.exists():
            return self.folder.read_config()
        stranger = next(self._written(), None)
        if stranger is None:
            return None
        raise RunError(
            f"{stranger} would be overwritten, but {self.folder.path} holds no run: "
            "choose another --run, or move the file away"
        )

    def _written(self):
        """The files in the folder that a run writes; config.json, which marks a run, comes last."""
        yield from self.folder.checkpoints.glob("step-*.npz")
        yield from self.folder.tensorboard.glob("events.out.tfevents.*")
        yield from self._exports()
        yield from (path for path in self._files() if path.exists())

    def _files(self):
        of = self.folder
        return (
            of.joint_tokenizer, *of.side_tokenizers, of.lexicon, of.best, of.last, of.history,
            of.translations, of.report, of.curves, of.attention, of.predictions, of.confusion,
            of.results, of.config,
        )  # fmt: skip

    def _exports(self):
        numbers = self.folder.saved_model.glob("[0-9]*")
        return (path for path in numbers if path.name.isdigit() and any(path.glob("*.pb")))

    def clear(self):
        """Deletes the run in the folder, by the names of its files, and no other file."""
        self.resumes = False
        unfinished = (path.with_name(f".{path.name}") for path in self._files())
        with explained(self.folder.path):
            for path in (*self.folder.checkpoints.glob(".step-*"), *unfinished):
                path.unlink(missing_ok=True)
            self.clear_exports()
            store.delete(self.folder.encoded)
            for path in self._written():
                path.unlink()
        of = self.folder
        for folder in (of.checkpoints, of.tensorboard, of.best.parent):
            remove_if_empty(folder)

    def clear_exports(self):
        """Deletes the exported versions of the run in the folder."""
        saved_model = self.folder.saved_model
        with explained(saved_model):
            for path in [*saved_model.glob(".unfinished-*")]:
                shutil.rmtree(path)
            for path in [*self._exports()]:  # renamed first: a server must not load half of one
                shutil.rmtree(path.rename(path.with_name(f".unfinished-{path.name}")))
        remove_if_empty(saved_model)


class FollowersClaim(Claim):
    """The claim of a worker other than the chief: it reads the run that the chief began."""

    writes = False

    def __init__(self, folder):
        self.folder, self.resumes = folder, True
        self.scratch = None  # in memory: the folder is the chief's

    def begin(self, training, arguments, *, overwrite=False):
        """Makes sure that this worker was started with the chief's settings."""
        if others := differences(self.folder.read_config()["training"], training):
            raise RunError(
                "The settings of this worker differ from those of the chief "
                f"({in_words(others)}): start all workers with the same command"
            )
        return True

    def clear(self):
        raise RunError(
            "The corpus of this worker differs from that of the chief: give all workers the same "
            "files"
        )

    def close(self):
        """Does nothing: this worker holds no lock."""


def _of_precision(others):
    """What to do if the run began on a processor with another default precision."""
    if "precision" not in others:
        return ""
    before, _ = others["precision"]
    return (
        ". The default precision depends on the processor; "
        f"--precision {before} keeps that of the run"
    )


def differences(before, now):
    """{name: (value before, value now)} of the entries of two dictionaries that differ as JSON.

    An entry that only one has, as when another version of the package wrote the other, differs
    unless it is off.

    >>> differences({"beams": 4}, {"beams": 4, "extend_vocab": False})
    {}
    """
    now = json.loads(json.dumps(now))
    names = sorted({*before, *now})
    pairs = {name: (before.get(name), now.get(name)) for name in names}
    return {
        name: pair
        for name, pair in pairs.items()
        if (pair[0] != pair[1] if name in before and name in now else any(pair))
    }


def in_words(others):
    """What `differences` found, for an error message."""
    return ", ".join(f"{name} {old!r} -> {new!r}" for name, (old, new) in others.items())


def remove_if_empty(folder):
    """Deletes a folder if it exists and is empty."""
    with contextlib.suppress(OSError):
        folder.rmdir()
