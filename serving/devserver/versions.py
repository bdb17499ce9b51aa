"""The versions of a model under its folder: the newest is loaded, and serves."""

import dataclasses
import logging
import pathlib
import time

import grpc
import tensorflow as tf

from keras_tfmr.export.saved_session import first_lines

from .session import code_and_text

log = logging.getLogger("devserver")


@dataclasses.dataclass
class Version:
    """One version: its number and state, and its `SavedSession` while it serves.

    `status` is a gRPC code and a text: why it failed, not the exception, which would keep the
    session. `files` are those that it was loaded from: see `files_of`.
    """

    number: int
    state: str = "LOADING"  # "AVAILABLE", "END": as TensorFlow Serving reports them
    session: object = None
    status: tuple = (grpc.StatusCode.OK, "")
    files: object = None


class Versions:
    """The versions of the server's only model, by its name, in the folder `base_path`.

    `load` is a function of a version's folder that returns a `SavedSession`.
    """

    def __init__(self, name, base_path, load):
        self.name, self._base_path, self._load = name, pathlib.Path(base_path), load
        self._versions = {}  # by their numbers

    def follow(self):
        """Serves the newest version that has a folder; what served goes on until that has loaded.

        A version that fails to load is tried again when its files have changed, as those of one
        that is still being copied. Without any folder, nothing is served.

        Raises:
            tf.errors.NotFoundError: No folder has a number as its name.
            Exception: Whatever loading fails with.
        """
        folders = self._folders()
        if not folders:
            self._end()
            text = f"{self._base_path} has no version: a folder named by a number"
            raise tf.errors.NotFoundError(None, None, text)
        number = max(folders)
        version = self._versions.setdefault(number, Version(number))
        failed = version.status[0] != grpc.StatusCode.OK
        if version.session or (failed and version.files == files_of(folders[number])):
            return
        version.state, version.status = "LOADING", (grpc.StatusCode.OK, "")
        version.files = files_of(folders[number])
        try:
            version.session = self._load(folders[number])
        except Exception as error:
            version.state, version.status = "END", code_and_text(error)
            raise
        version.state = "AVAILABLE"
        log.info("Serving version %d of %s", number, self.name)
        self._end(but=version)

    def _folders(self):
        """{number: folder} of the versions; TensorFlow Serving's numbers have 64 bits."""
        folders = self._base_path.glob("*/")
        numbered = {int(f.name): f for f in folders if f.name.isascii() and f.name.isdigit()}
        return {number: folder for number, folder in numbered.items() if number < 2**63}

    def _end(self, but=None):
        """Serves no version any more, except one."""
        for version in self._versions.values():
            if version is not but and version.session:
                # The session is freed when the last request that uses it has its answer.
                version.session, version.state = None, "END"

    def watch(self, seconds):
        """Follows the folder every `seconds` seconds, without end."""
        before = None
        while True:
            time.sleep(seconds)
            try:
                self.follow()
                before = None
            except Exception as error:
                if (said := first_lines(error)) != before:
                    log.warning("No other version: %s", said)
                before = said

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


def files_of(folder):
    """The set of the files in a folder, each with its size and the time of its last change."""
    found = ((file, file.stat()) for file in folder.rglob("*"))
    return {(file, stat.st_size, stat.st_mtime_ns) for file, stat in found}
