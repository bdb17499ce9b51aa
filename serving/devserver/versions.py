"""The versions under the model's folder: loads the newest, drains the one that it replaces."""

import asyncio
import concurrent.futures
import dataclasses
import math
import pathlib
import time
from typing import Any

from .errors import Code, StatusError, from_exception, log
from .job_queue import JobQueue
from .model import load

RETRY_SECONDS = 10
LARGEST_VERSION = 2**63 - 1  # an int64


@dataclasses.dataclass(eq=False)
class Version:
    """One version and what became of it; `session` and `run` are set while it serves."""

    number: int
    path: pathlib.Path
    state: str = "LOADING"
    error: StatusError | None = None
    retry: float = 0.0  # time of the monotonic clock; one that failed may be a copy in progress
    session: Any = None  # a `SavedSession`
    run: JobQueue | None = None


def versions_on_disk(folder):
    """{number: path} of the version folders; names that are no numbers (int64) are ignored."""
    try:
        numbered = {p.name: p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit()}
    except OSError as error:
        raise StatusError(Code.NOT_FOUND, f"Cannot read {folder}: {error.strerror}") from None
    versions = {int(name): path for name, path in numbered.items() if int(name) <= LARGEST_VERSION}
    if not versions:
        raise StatusError(Code.NOT_FOUND, f"{folder} has no version: a folder named by a number")
    return versions


class Versions:
    """The versions of the server's only model, for the options of `server.py`."""

    def __init__(self, options):
        self.name = options.model_name
        self.options = options
        self._versions = {}
        self._unloads = set()
        self._pool = concurrent.futures.ThreadPoolExecutor(2)  # loads one, unloads another

    def _in_thread(self, function, *arguments):
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def load_newest(self):
        """Loads the newest version on disk, unless it serves or has failed a moment ago.

        Raises:
            StatusError: The folder has no version, or the newest does not load.
        """
        folder = pathlib.Path(self.options.model_base_path)
        number, path = max((await self._in_thread(versions_on_disk, folder)).items())
        known = self._versions.get(number)
        if known is None or (known.state == "END" and time.monotonic() >= known.retry):
            version = self._versions[number] = Version(number, path)
            await self._load(version)
            for other in self._versions.values():
                if other is not version and other.state == "AVAILABLE":
                    other.state = "UNLOADING"
                    task = asyncio.create_task(self._unload(other))
                    self._unloads.add(task)  # the event loop itself keeps no reference
                    task.add_done_callback(self._unloads.discard)

    async def _load(self, version):
        options, started = self.options, time.monotonic()
        log.info("Loading %s", version.path)
        try:
            version.session = await self._in_thread(load, version.path, options.threads)
        except Exception as error:
            version.state, version.error = "END", from_exception(error)
            version.retry = time.monotonic() + RETRY_SECONDS
            raise version.error from error
        version.run = JobQueue(options.threads, options.max_queue)
        version.state = "AVAILABLE"
        seconds = time.monotonic() - started
        log.info("Serving version %d of %s after %.1f s", version.number, self.name, seconds)

    async def _unload(self, version):
        await version.run.drain()
        await self._in_thread(version.session.close)
        version.session = version.run = None
        version.state = "END"
        log.info("Unloaded version %d of %s", version.number, self.name)

    async def watch(self):
        """Looks for a newer version for ever; one that does not load changes nothing."""
        while True:
            await asyncio.sleep(self.options.file_system_poll_wait_seconds or math.inf)
            try:
                await self.load_newest()
            except StatusError as error:
                log.warning("%s", error)

    def get(self, name, number=None):
        """The serving version that a request asks for; the newest if `number` is None.

        Raises:
            StatusError: UNAVAILABLE while the first version loads, otherwise NOT_FOUND.
        """
        for version in self.listed(name, number):
            if version.state == "AVAILABLE":
                return version
        if all(version.state == "LOADING" for version in self._versions.values()):
            text = f"Model {name} is loading. Try again in a few seconds"
            raise StatusError(Code.UNAVAILABLE, text)
        which = "version" if number is None else f"version {number}"
        raise StatusError(Code.NOT_FOUND, f"The server serves no {which} of model {name}")

    def listed(self, name, number=None):
        """The versions of a model, newest first; only the one with a number, if it is given.

        Raises:
            StatusError: NOT_FOUND, the server does not know the model or the version.
        """
        if name != self.name:
            text = f"The server's only model is {self.name}. Received: {name}"
            raise StatusError(Code.NOT_FOUND, text)
        asked = [self._versions[key] for key in sorted(self._versions) if number in (None, key)]
        if self._versions and not asked:
            raise StatusError(Code.NOT_FOUND, f"Model {name} has no version {number}")
        return asked[::-1]

    def close(self):
        """Stops what still runs."""
        for version in self._versions.values():
            if version.session is not None:
                version.session.close()
