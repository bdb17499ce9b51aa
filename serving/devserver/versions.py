"""The versions of a model under its folder: the newest is loaded, and serves."""

import dataclasses
import logging
import pathlib
import time

import tensorflow as tf

from keras_tfmr.export.saved_session import first_lines

log = logging.getLogger("devserver")


@dataclasses.dataclass
class Version:
    """One version: its number and state, its `SavedSession` while it serves, why it failed."""

    number: int
    state: str = "LOADING"  # "AVAILABLE", "END": as TensorFlow Serving reports them
    session: object = None
    error: Exception | None = None


class Versions:
    """The versions of the server's only model, by its name, in the folder `base_path`.

    `load` is a function of a version's folder that returns a `SavedSession`.
    """

    def __init__(self, name, base_path, load):
        self.name, self._base_path, self._load = name, pathlib.Path(base_path), load
        self._versions = {}  # by their numbers

    def load_newest(self):
        """Loads the newest version, which then replaces the one that serves.

        If that fails, the one before goes on serving, and the new one is not tried again.

        Raises:
            tf.errors.NotFoundError: No folder has a number as its name.
            Exception: Whatever loading fails with.
        """
        folders = self._base_path.glob("*/")
        numbered = {int(f.name): f for f in folders if f.name.isascii() and f.name.isdigit()}
        if not numbered:
            text = f"{self._base_path} has no version: a folder named by a number"
            raise tf.errors.NotFoundError(None, None, text)
        number = max(numbered)
        known = self._versions.get(number)
        if known and (known.session or known.error):
            return
        version = self._versions[number] = Version(number)
        try:
            version.session = self._load(numbered[number])
        except Exception as error:
            version.state, version.error = "END", error
            raise
        version.state = "AVAILABLE"
        log.info("Serving version %d of %s", number, self.name)
        for other in self._versions.values():
            if other is not version and other.session:
                # The session is freed when the last request that uses it has its answer.
                other.session, other.state = None, "END"

    def watch(self, seconds):
        """Looks for a newer version every `seconds` seconds, without end."""
        while True:
            time.sleep(seconds)
            try:
                self.load_newest()
            except Exception as error:
                log.warning("No newer version: %s", first_lines(error))

    def listed(self, name, number=None):
        """The `Version`s of a model, newest first, or the one with a number; an error if none."""
        newest_first = sorted(self._versions.items(), reverse=True)
        found = [v for n, v in newest_first if name == self.name and number in (None, n)]
        if not found:
            which = "any versions" if number is None else f"version {number}"
            raise tf.errors.NotFoundError(None, None, f"Could not find {which} of model {name}")
        return found

    def serving(self, name, number=None):
        """(number, `SavedSession`) of the version that a request asks for; errors as `listed`."""
        for version in self.listed(name, number):
            if session := version.session:
                return version.number, session
        asked = "" if number is None else f" with number {number}"
        text = f"No version{asked} of model {name} is available"
        raise tf.errors.NotFoundError(None, None, text)
