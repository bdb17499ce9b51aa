"""Which versions of which models are served: watching directories, loading, swapping, unloading."""

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
    """One version of a model and how far it has come."""

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
        """Whether it is to be loaded anew: it was unloaded, or failed and was gone meanwhile."""
        return self.state == State.END and not (self.aspired and self.error)


class Model:
    def __init__(self, name):
        self.name = name
        self.config = None  # none: no longer served, but its versions' states stay known
        self.versions = {}

    def available(self):
        return [v for v in self.versions.values() if v.state == State.AVAILABLE]


class Manager:
    """Serves the models of a ModelServerConfig.

    Args:
        load: function (model name, number, path) to Servable; runs in a thread.
        pool: executor for loading, unloading and looking at the disk.
        options: flags: retries, poll interval, labels.
    """

    def __init__(self, load, pool, options):
        self._load_servable = load
        self._pool = pool
        self._options = options
        self._models = {}
        self._labels = {}
        self._poller = None
        self._reloading = asyncio.Lock()

    async def start(self, config):
        """Loads the initial models and begins to watch.

        Raises:
            ServingError: a model is missing or does not load.
        """
        await self.reload(config)
        if self._options.file_system_poll_wait_seconds > 0:
            self._poller = asyncio.create_task(self._watch())

    async def reload(self, config):
        """Switches to another config; the models in both go on being served.

        Raises:
            ServingError: the config is not valid (nothing changed), or a model did not load.
        """
        async with self._reloading:
            validate_models(config)
            models = config.model_config_list.config
            found = {m.name: await self._look(m) for m in models}
            labels = self._checked_labels(models)
            for name in set(self._models) - set(found):
                self._models[name].config = None
                self._reconcile(self._models[name], {})
            for m in models:
                model = self._models.setdefault(m.name, Model(m.name))
                model.config = m
                self._reconcile(model, found[m.name])
            self._labels = labels
            await self._settle([self._models[name] for name in found])

    def _checked_labels(self, models):
        labels = {}
        for config in models:
            known = self._models.get(config.name)
            available = [v.number for v in known.available()] if known else []
            for label, number in config.version_labels.items():
                moves = self._labels.get((config.name, label), number) != number
                unchecked = self._options.allow_version_labels_for_unavailable_models and not moves
                if number not in available and not unchecked:
                    raise failed_precondition(
                        f"Request to assign label to version {number} of model {config.name}, "
                        f"which is not currently available for inference"
                    )
                labels[config.name, label] = number
        return labels

    async def _look(self, config):
        # Not in the pool: loading may keep that busy for long.
        found = await asyncio.to_thread(versions_on_disk, config.base_path)
        return chosen(found, config.model_version_policy)

    async def _watch(self):
        while True:
            await asyncio.sleep(self._options.file_system_poll_wait_seconds)
            for model in list(self._models.values()):
                if model.config is None:
                    continue
                try:
                    config = model.config
                    found = await self._look(config)
                except ServingError as error:
                    log.warning("%s", error)
                    continue
                if model.config is config:
                    self._reconcile(model, found)

    def _reconcile(self, model, aspired):
        for number, path in aspired.items():
            version = model.versions.get(number)
            if version is None or version.may_come_back():
                version = model.versions[number] = Version(model.name, number, path)
                version.task = asyncio.create_task(self._load(model, version))
            version.aspired = True
        for number, version in model.versions.items():
            version.aspired = number in aspired
        self._unload_unwanted(model)

    async def _load(self, model, version):
        version.state = State.LOADING
        for attempt in range(self._options.max_num_load_retries + 1):
            if attempt:
                await asyncio.sleep(self._options.load_retry_interval_micros / 1e6)
            if not version.aspired:
                break
            try:
                version.servable = await self._in_thread(
                    self._load_servable, model.name, version.number, version.path
                )
            except Exception as error:
                version.error = from_exception(error)
                log.error("Loading servable: %s failed: %s", version, version.error)
                continue
            version.error = None
            version.state = State.AVAILABLE
            log.info("Successfully loaded servable version %s", version)
            self._unload_unwanted(model)
            return
        version.state = State.END

    def _in_thread(self, function, *arguments):
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def _unload_unwanted(self, model):
        """Unloads what is no longer wanted, but never before what is wanted can answer."""
        wanted = [v for v in model.versions.values() if v.aspired]
        if wanted and not any(v.state == State.AVAILABLE for v in wanted):
            return
        for version in model.available():
            if not version.aspired:
                version.state = State.UNLOADING
                version.task = asyncio.create_task(self._unload(version))

    async def _unload(self, version):
        while version.servable.lease.users:
            await asyncio.sleep(0.02)
        servable, version.servable = version.servable, None
        await self._in_thread(servable.close)
        version.state = State.END

    async def _settle(self, models):
        """Waits until every aspired version is loaded or given up."""
        tasks = [v.task for m in models for v in m.versions.values() if v.aspired and v.task]
        if tasks:
            await asyncio.wait(tasks)
        failed = [
            f"{{{v} due to error: {v.error}}}"
            for m in models
            if not m.available()
            for v in m.versions.values()
            if v.aspired and v.error
        ]
        if failed:
            raise ServingError(
                grpc.StatusCode.UNKNOWN,
                f"{len(failed)} servable(s) did not become available: {{{', '.join(failed)}}}",
            )

    @contextlib.contextmanager
    def use(self, spec):
        """Lends the servable that a ModelSpec asks for; it is not unloaded meanwhile.

        Raises:
            ServingError: no such model, version or label.
        """
        servable = self._find(spec)
        with servable.lease:
            yield servable

    def _find(self, spec):
        if not spec.name:
            raise invalid("ModelSpec has no name specified.")
        model = self._models.get(spec.name)
        available = {v.number: v for v in model.available()} if model else {}
        number = self.version_number(spec)
        if number is None:
            if not available:
                raise not_found(f"Servable not found for request: Latest({spec.name})")
            number = max(available)
        elif number not in available:
            raise not_found(f"Servable not found for request: Specific({spec.name}, {number})")
        return available[number].servable

    def version_number(self, spec):
        """The number that a ModelSpec names itself or by its label; None: the latest."""
        if spec.WhichOneof("version_choice") != "version_label":
            return spec.version.value if spec.HasField("version") else None
        number = self._labels.get((spec.name, spec.version_label))
        if number is None:
            raise invalid(f"Unrecognized servable version label: {spec.version_label}")
        return number

    def status(self, spec):
        """The versions that a ModelSpec names, newest first.

        Raises:
            ServingError: NOT_FOUND.
        """
        model = self._models.get(spec.name)
        versions = model.versions if model else {}
        number = self.version_number(spec)
        if number is None:
            if not versions:
                raise not_found(f"Could not find any versions of model {spec.name}")
            return [versions[n] for n in sorted(versions, reverse=True)]
        if number not in versions:
            raise not_found(f"Could not find version {number} of model {spec.name}")
        return [versions[number]]

    async def close(self):
        """Stops watching and frees every session after its last request."""
        if self._poller:
            self._poller.cancel()
        for model in self._models.values():
            self._reconcile(model, {})
        tasks = [v.task for m in self._models.values() for v in m.versions.values() if v.task]
        if tasks:
            await asyncio.wait(tasks, timeout=10)
