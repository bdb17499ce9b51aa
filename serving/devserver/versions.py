"""Decides which versions are served: watches directories, loads, swaps and unloads versions."""

import asyncio
import contextlib
import dataclasses
import logging

import grpc
from tensorflow_serving.apis import get_model_status_pb2

from .configs import chosen, validate_models, versions_on_disk
from .errors import ServingError, failed_precondition, from_exception, invalid, not_found

State = get_model_status_pb2.ModelVersionStatus.State
log = logging.getLogger("devserver")


@dataclasses.dataclass(eq=False)
class Version:
    """One version of a model and its state."""

    model: str
    number: int
    path: str
    state: int = State.START
    error: ServingError | None = None
    servable: object = None
    aspired: bool = True
    task: asyncio.Task | None = None  # what loads or unloads it

    def __str__(self):
        return f"{{name: {self.model} version: {self.number}}}"

    def may_come_back(self):
        """Whether to load it again: it was unloaded, or it failed and has been removed since."""
        return self.state == State.END and not (self.aspired and self.error)


class Manager:
    """Serves the models of a ModelServerConfig.

    Args:
        load: Function (model name, number, path) to Servable; runs in a thread.
        pool: Executor for loading, unloading and looking at the disk.
        options: Flags: retries, poll interval, labels.
    """

    def __init__(self, load, pool, options):
        self._load_servable = load
        self._pool = pool
        self._options = options
        self._configs = {}  # name: ModelConfig of the models that are served
        self._versions = {}  # name: {number: Version}; includes versions no longer served
        self._labels = {}
        self._poller = None
        self._reloading = asyncio.Lock()

    async def start(self, config):
        """Loads the initial models and starts to watch their directories.

        Raises:
            ServingError: A model is missing or does not load.
        """
        await self.reload(config)
        if self._options.file_system_poll_wait_seconds > 0:
            self._poller = asyncio.create_task(self._watch())

    async def reload(self, config):
        """Switches to another config; models that are in both stay available.

        Raises:
            ServingError: The config is not valid, and nothing changed; or a model did not load.
        """
        async with self._reloading:
            validate_models(config)
            configs = {model.name: model for model in config.model_config_list.config}
            found = {name: await self._look(model) for name, model in configs.items()}
            self._labels = self._checked_labels(configs)
            self._configs = configs
            for name in found | self._versions:
                self._reconcile(name, found.get(name, {}))
            await self._settle(found)

    def _available(self, name):
        versions = self._versions.get(name, {})
        return {n: version for n, version in versions.items() if version.state == State.AVAILABLE}

    def _checked_labels(self, configs):
        """Labels are checked before their versions are loaded, as in the real server."""
        options, labels = self._options, {}
        for name, config in configs.items():
            for label, number in config.version_labels.items():
                moves = self._labels.get((name, label), number) != number
                unchecked = options.force_allow_any_version_labels_for_unavailable_models or (
                    options.allow_version_labels_for_unavailable_models and not moves
                )
                if number not in self._available(name) and not unchecked:
                    raise failed_precondition(
                        f"Request to assign label to version {number} of model {name}, which is "
                        f"not currently available for inference"
                    )
                labels[name, label] = number
        return labels

    async def _look(self, config):
        # Not in the pool: loading may keep its threads busy for a long time.
        found = await asyncio.to_thread(versions_on_disk, config.base_path)
        return chosen(found, config.model_version_policy)

    async def _watch(self):
        while True:
            await asyncio.sleep(self._options.file_system_poll_wait_seconds)
            for name, config in list(self._configs.items()):
                try:
                    found = await self._look(config)
                except ServingError as error:
                    log.warning("%s", error)
                    continue
                if self._configs.get(name) is config:  # no reload meanwhile
                    self._reconcile(name, found)

    def _reconcile(self, name, aspired):
        versions = self._versions.setdefault(name, {})
        for number, path in aspired.items():
            version = versions.get(number)
            if version is None or version.may_come_back():
                version = versions[number] = Version(name, number, path)
                version.task = asyncio.create_task(self._load(version))
        for number, version in versions.items():
            version.aspired = number in aspired
        self._unload_unwanted(name)

    async def _load(self, version):
        version.state = State.LOADING
        for attempt in range(self._options.max_num_load_retries + 1):
            if attempt:
                await asyncio.sleep(self._options.load_retry_interval_micros / 1e6)
            if not version.aspired:
                break
            try:
                version.servable = await self._in_thread(
                    self._load_servable, version.model, version.number, version.path
                )
            except Exception as error:
                version.error = from_exception(error)
                log.error("Loading servable: %s failed: %s", version, version.error)
                continue
            version.error = None
            version.state = State.AVAILABLE
            log.info("Successfully loaded servable version %s", version)
            self._unload_unwanted(version.model)
            return
        version.state = State.END

    def _in_thread(self, function, *arguments):
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def _unload_unwanted(self, name):
        """Unloads versions that are no longer wanted, once a wanted one is available."""
        available = self._available(name).values()
        aspired = any(version.aspired for version in self._versions[name].values())
        if aspired and not any(version.aspired for version in available):
            return
        for version in available:
            if not version.aspired:
                version.state = State.UNLOADING
                version.task = asyncio.create_task(self._unload(version))

    async def _unload(self, version):
        while version.servable.lease.users:
            await asyncio.sleep(0.02)
        servable, version.servable = version.servable, None
        await self._in_thread(servable.close)
        version.state = State.END

    async def _settle(self, names):
        """Waits until every aspired version has loaded or failed for good."""
        versions = [v for name in names for v in self._versions[name].values() if v.aspired]
        if versions:
            await asyncio.wait([version.task for version in versions])
        failed = [
            f"{{{version} due to error: {version.error}}}"
            for version in versions
            if version.aspired and version.error and not self._available(version.model)
        ]
        if failed:
            what = f"{len(failed)} servable(s) did not become available"
            raise ServingError(grpc.StatusCode.UNKNOWN, f"{what}: {{{', '.join(failed)}}}")

    def known(self, name):
        """The name if a model of that name is or was served, otherwise "".

        Clients may send any name; the metrics keep one counter for every known name.
        """
        return name if name in self._versions else ""

    @contextlib.contextmanager
    def use(self, spec):
        """Context with the servable that a ModelSpec names; it stays loaded until the context ends.

        Raises:
            ServingError: There is no such model, version or label.
        """
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        available = self._available(spec.name)
        asked = self.version_number(spec)
        number = max(available, default=None) if asked is None else asked
        if number not in available:
            which = f"Latest({spec.name})" if asked is None else f"Specific({spec.name}, {asked})"
            raise not_found(f"Servable not found for request: {which}")
        servable = available[number].servable
        with servable.lease:
            yield servable

    def version_number(self, spec):
        """The version number that a ModelSpec gives, directly or by label; None for the latest."""
        if spec.WhichOneof("version_choice") != "version_label":
            return spec.version.value if spec.HasField("version") else None
        number = self._labels.get((spec.name, spec.version_label))
        if number is None:
            raise invalid(f"Unrecognized servable version label: {spec.version_label}")
        return number

    def status(self, spec):
        """The versions that a ModelSpec names, newest first.

        Raises:
            ServingError: NOT_FOUND, no version matches.
        """
        number = self.version_number(spec)
        versions = self._versions.get(spec.name, {})
        found = [versions[n] for n in sorted(versions, reverse=True) if number in (None, n)]
        if not found:
            what = "any versions" if number is None else f"version {number}"
            raise not_found(f"Could not find {what} of model {spec.name}")
        return found

    async def close(self):
        """Stops watching and frees every session after its last request."""
        if self._poller:
            self._poller.cancel()
        for name in self._versions:
            self._reconcile(name, {})
        tasks = [v.task for versions in self._versions.values() for v in versions.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=10)
