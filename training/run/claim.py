"""Who may write in a run folder, and whether a run goes on in it or begins."""

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
        RunError: If it cannot be made or written, or another process trains in it.
    """

    writes = True

    def __init__(self, folder):
        self.folder = folder
        self.scratch = folder.encoded  # where the batches keep what grows with the corpus
        self.goes_on = False  # whether an unfinished run does, known from `begin` on
        with explained(folder.path):
            folder.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise RunError(f"Another process is training in {folder.path}") from error

    def close(self):
        """Lets another process have the folder."""
        os.close(self._lock)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def begin(self, training, arguments, *, overwrite=False):
        """Prepares the folder for a run with these settings; says whether one goes on here.

        Args:
            training: {setting: value} that the weights depend on.
            arguments: {setting: value} of all settings.
            overwrite: Whether to delete an earlier run. Not an unfinished one that was begun with
                the very same arguments: whoever repeats the command of a run that was killed
                wants its checkpoints.

        Returns:
            True if an unfinished run with the same settings goes on.

        Raises:
            RunError: If the folder holds a finished run, one with other settings, or files that
                are no run's.
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
            raise RunError(f"{path} holds a finished run: name another --run, or --overwrite")
        if others := differences(before["training"], training):
            told = ", ".join(f"{n} {old!r} -> {new!r}" for n, (old, new) in others.items())
            raise RunError(
                f"{path} holds an unfinished run with other settings ({told}): "
                f"repeat its command, name another --run, or --overwrite{_of_precision(others)}"
            )
        self.goes_on = True
        return True

    def keep_to(self, corpus, *, overwrite=False):
        """Makes sure that a run that goes on learns from what it began with.

        Args:
            corpus: Counts and checksums, as config.json has them.
            overwrite: Whether to start anew with another corpus.

        Raises:
            RunError: If the corpus is another one.
        """
        if not self.goes_on:
            return
        others = differences(self._config_before()["corpus"], corpus)
        if not others:
            return
        if not overwrite:
            told = ", ".join(f"{n} {old!r} -> {new!r}" for n, (old, new) in others.items())
            raise RunError(
                f"The corpus is not the one that the run in {self.folder.path} began with "
                f"({told}): name another --run, or --overwrite"
            )
        self.clear()

    def _config_before(self):
        """The config.json of the run that is here, or None if the folder is free for one.

        Raises:
            RunError: If the folder has somebody else's files under the names that a run writes.
        """
        if self.folder.config.exists():
            return self.folder.read_config()
        stranger = next(self._written(), None)
        if stranger is None:
            return None
        raise RunError(
            f"{stranger} would be overwritten, but {self.folder.path} holds no run: "
            "name another --run, or move the file away"
        )

    def _written(self):
        """What there is under the names that a run writes; what marks it as a run comes last."""
        yield from self.folder.checkpoints.glob("step-*.npz")
        yield from self.folder.tensorboard.glob("events.out.tfevents.*")
        yield from self._exports()
        yield from (path for path in self._files() if path.exists())

    def _files(self):
        of = self.folder
        return (
            of.joint_tokenizer, *of.side_tokenizers, of.best, of.last, of.history,
            of.translations, of.report, of.curves, of.attention, of.predictions, of.confusion,
            of.results, of.config,
        )  # fmt: skip

    def _exports(self):
        numbers = self.folder.saved_model.glob("[0-9]*")
        return (path for path in numbers if path.name.isdigit() and any(path.glob("*.pb")))

    def clear(self):
        """Deletes the run that is here, by the names of its files: nothing that no run wrote."""
        self.goes_on = False
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
        """Deletes the exported versions of the run that is here."""
        saved_model = self.folder.saved_model
        with explained(saved_model):
            for path in [*saved_model.glob(".unfinished-*")]:
                shutil.rmtree(path)
            for path in [*self._exports()]:  # renamed, so that a server never sees half of one
                shutil.rmtree(path.rename(path.with_name(f".unfinished-{path.name}")))
        remove_if_empty(saved_model)


class FollowersClaim(Claim):
    """That of a worker beside the one that writes: it reads the run that the other began."""

    writes = False

    def __init__(self, folder):
        self.folder, self.goes_on = folder, True
        self.scratch = None  # in memory: the folder is the chief's

    def begin(self, training, arguments, *, overwrite=False):
        """Makes sure that this worker was started with the settings of the others."""
        if others := differences(self.folder.read_config()["training"], training):
            told = ", ".join(f"{n} {old!r} -> {new!r}" for n, (old, new) in others.items())
            raise RunError(f"This worker has other settings than the chief ({told})")
        return True

    def clear(self):
        raise RunError("This worker reads another corpus than the chief")

    def close(self):
        """Nothing is held."""


def _of_precision(others):
    """What to do where the processor is another one than the run began on."""
    if "precision" not in others:
        return ""
    before, _ = others["precision"]
    return (
        f". This processor's default precision differs; --precision {before} keeps that of the run"
    )


def differences(before, now):
    """{name: (value before, value now)} of what differs in two dictionaries, once they are JSON."""
    now = json.loads(json.dumps(now))
    names = sorted({*before, *now})
    pairs = {name: (before.get(name), now.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def remove_if_empty(folder):
    """Deletes a folder unless it is missing or something is left in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()
