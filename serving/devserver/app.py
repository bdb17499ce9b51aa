"""Starts the server from its flags, and stops it in order."""

import asyncio
import concurrent.futures
import functools
import logging
import os
import resource
import signal
import sys

import grpc
import tensorflow as tf
import uvloop
from tensorflow.core.protobuf import config_pb2

from keras_tfmr.export import compile_cache, saved_session

from . import (
    batching,
    configs,
    examples,
    grpc_api,
    memory,
    metrics,
    predict,
    rest_api,
    servable,
    versions,
)
from .errors import ServingError

log = logging.getLogger("devserver")

# Kind of warm-up record: the function that turns it into a call.
PREPARE = {
    "predict_log": predict.prepare,
    "classify_log": examples.prepare_classify,
    "regress_log": examples.prepare_regress,
}


class Server:
    """The models, the gRPC and REST front ends and the threads that the flags ask for.

    Args:
        options: From `flags.parse`.
        settings: From `configs.settings`.
    """

    def __init__(self, options, settings):
        self.options = options
        self.settings = settings
        self.metrics = metrics.Metrics()
        self.stopping = asyncio.Event()
        self.scheduler = batching.Scheduler(settings.batching.threads if settings.batching else 1)
        self.pool = concurrent.futures.ThreadPoolExecutor(options.grpc_max_threads, "run")
        self.loaders = concurrent.futures.ThreadPoolExecutor(options.num_load_threads or 1, "load")

    def load(self, name, number, path):
        """Loads a version and replays its warm-up file; runs in a thread."""
        compile_cache.adopt(path)
        tags = self.options.saved_model_tags.split(",")
        loaded = servable.Servable(name, number, path, tags, self._session_config())
        try:
            loaded.batching = self._batching_of(path)
            if self.options.enable_model_warmup:
                self._warm_up(loaded)
        except Exception:
            loaded.close()
            raise
        return loaded

    def _batching_of(self, path):
        """The batch settings of one version: those of its own file, if the flags allow one."""
        if not self.options.enable_per_model_batching_parameters:
            return self.settings.batching
        file = os.path.join(path, "batching_params.pbtxt")
        if not os.path.exists(file):
            return None
        return configs.batch_settings(configs.read(file, configs.BatchingParameters))

    def _warm_up(self, loaded):
        firsts, others = {}, []
        for kind, request in servable.warmup_requests(loaded.path):
            call = PREPARE[kind](loaded, request)
            if firsts.setdefault(request.model_spec.signature_name, call) is not call:
                others.append(call)
        # Side by side: the first request of a signature is mostly work of one thread.
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for calls in (list(firsts.values()), others):
                list(pool.map(functools.partial(self._replay, loaded), calls))

    def _replay(self, loaded, call):
        for _ in range(self.options.num_request_iterations_for_warmup):
            if self.stopping.is_set():
                raise ServingError(grpc.StatusCode.CANCELLED, "The server is stopping")
            if loaded.batching is None:
                loaded.run(call.feeds, call.fetches)
                continue
            for part in batching.split_rows(call.feeds, loaded.batching):
                batching.run_batch(loaded, [part], call.fetches)

    def _session_config(self):
        options = self.options
        both = options.tensorflow_session_parallelism
        return config_pb2.ConfigProto(
            intra_op_parallelism_threads=both or options.tensorflow_intra_op_parallelism,
            inter_op_parallelism_threads=both or options.tensorflow_inter_op_parallelism,
        )

    async def serve(self):
        """Loads the models, serves until SIGTERM or SIGINT, then finishes the running requests.

        Raises:
            ServingError: The server could not start.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        stop = asyncio.create_task(self.stopping.wait())
        manager = versions.Manager(self.load, self.loaders, self.options)
        closing = []  # how to stop each front end
        running = asyncio.create_task(self._run(manager, closing))
        try:
            await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            log.info("Stopping: finishing what is running")
        finally:
            running.cancel()
            await asyncio.gather(*(close() for close in closing))
            await manager.close()

    async def _run(self, manager, closing):
        options = self.options
        await manager.start(self.settings.models)
        predictor = predict.Predictor(manager, self.scheduler, self.pool, self.metrics)
        if options.rest_api_port:
            monitoring = self.settings.monitoring
            runner = await rest_api.start(predictor, self.metrics, options, monitoring)
            closing.append(runner.cleanup)
        if options.port or options.grpc_socket_path:
            server = await grpc_api.start(predictor, self.metrics, options, self.settings.ssl)
            closing.append(functools.partial(server.stop, options.shutdown_grace_seconds))
            log.info("Running gRPC ModelServer at %s:%d ...", options.host, options.port)
        if options.rest_api_port:
            log.info("Exporting HTTP/REST API at:%s:%d ...", options.host, options.rest_api_port)
        if options.model_config_file and options.model_config_file_poll_wait_seconds > 0:
            await self._poll_config(manager)
        await self.stopping.wait()

    async def _poll_config(self, manager):
        """Reads the config file at each interval; an invalid file changes nothing."""
        current = self.settings.models
        while True:
            await asyncio.sleep(self.options.model_config_file_poll_wait_seconds)
            try:
                config = configs.read(self.options.model_config_file, configs.ModelServerConfig)
                if config != current:
                    await manager.reload(config)
                    current = config
            except ServingError as error:
                log.error("Config file not taken over: %s", error)


def _refuse_xla():
    try:
        saved_session.forbid_compilation()
    except saved_session.NotExportedError as error:
        log.warning("Graphs that ask for XLA run here, though the real server refuses: %s", error)


def _prepare_process(options):
    memory.share_arenas()  # before the threads are there
    logging.basicConfig(format="%(asctime)s %(levelname).1s %(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)
    tf.get_logger().setLevel(logging.ERROR)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # every idle connection is a file
    if not (options.xla_cpu_compilation_enabled or options.xla_gpu_compilation_enabled):
        _refuse_xla()
    if not saved_session.register_text_ops():
        log.info("tensorflow_text is not installed: models that need it will not load")
    for name in options.ignored:
        log.info("--%s has no meaning here and is ignored", name)


def run(options, settings):
    """Serves until SIGTERM.

    Args:
        options: From `flags.parse`.
        settings: From `configs.settings`.

    Raises:
        ServingError: The server could not start.
    """
    _prepare_process(options)
    uvloop.run(Server(options, settings).serve())
