"""Several devices and several hosts: data parallelism by `tf.distribute` or `keras.distribution`.

Each worker reads its own rows of every batch, so that the weights do not depend on the number of
workers, but for rounding and dropout. Restarts belong to Kubernetes, Kubeflow or SLURM.
"""

import contextlib
import json
import os

import keras

from keras_tfmr import compat
from training.command.disk import RunError


def connect(settings):
    """The `Distribution` that settings and environment ask for.

    `TF_CONFIG`, as Kubeflow and Vertex AI set it, names the hosts; with `--cluster slurm`, the
    variables of `srun` do.
    """
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise RunError(f"Training runs on TensorFlow and JAX. Received: KERAS_BACKEND={backend}")
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        tasks = config.get("cluster", {})
        several = sum(map(len, tasks.values())) > 1
        if several:
            tasks[config["task"]["type"]][int(config["task"]["index"])]
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise RunError(f"Cannot read TF_CONFIG ({error}): {os.environ['TF_CONFIG']}") from error
    if tasks and settings.cluster:
        raise RunError("TF_CONFIG has no effect beside --cluster slurm: unset it")
    if settings.cluster and "SLURM_PROCID" not in os.environ:
        raise RunError("--cluster slurm needs the variables that srun sets, such as SLURM_PROCID")
    several = several or settings.cluster == "slurm"
    if several and not (settings.steps or settings.epochs):
        raise RunError("Several hosts cannot agree on --minutes: give --steps")
    if not several and settings.devices == 1:
        return Distribution()
    return {"tensorflow": OnTensorFlow, "jax": OnJax}[backend](settings, several)


class Distribution:
    """One device; the base of the others. Worker 0 is the chief.

    Attributes:
        pieces: Number of parts in which `fit` wants this worker's rows of a batch.
    """

    index, workers, devices, pieces = 0, 1, 1, 1

    def scope(self):
        """A context in which the model and its optimizer are made."""
        return contextlib.nullcontext()

    @property
    def chief(self):
        """Whether this process writes the files."""
        return self.index == 0

    @property
    def replicas(self):
        """Number of devices over all workers."""
        return self.workers * self.devices

    def barrier(self):
        """Waits until all workers have called this."""

    def read_config(self, folder):
        """The config.json that the chief has written."""
        self.barrier()
        return folder.read_config()

    def prepare(self, model, task):
        """Changes a compiled model as needed."""

    def dataset(self, batches):
        """The input of `fit`, from a dataset of batches."""
        return batches

    def part(self, batch):
        """This worker's rows of each tensor of a batch, `[pieces, rows, …]`."""
        import tensorflow as tf

        def cut(rows):
            shape = tf.concat([[self.workers, self.pieces, -1], tf.shape(rows)[1:]], axis=0)
            return tf.reshape(rows, shape)[self.index]

        return tf.nest.map_structure(cut, batch)


class OnTensorFlow(Distribution):
    """Replicas by a strategy of TensorFlow."""

    def __init__(self, settings, several):
        import tensorflow as tf

        self.devices = self.pieces = settings.devices
        devices = _local_devices(self.devices) if self.devices > 1 else None
        if several:
            resolvers = tf.distribute.cluster_resolver
            slurm = settings.cluster == "slurm"
            resolver = (
                resolvers.SlurmClusterResolver if slurm else resolvers.TFConfigClusterResolver
            )()
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
            self.index = resolver.task_id or 0
            self.workers = self.strategy.num_replicas_in_sync // self.devices
        else:
            self.strategy = tf.distribute.MirroredStrategy(devices)

    def scope(self):
        return self.strategy.scope()

    def barrier(self):
        import tensorflow as tf

        wait = tf.function(lambda: self.strategy.run(lambda: tf.constant(1.0)), autograph=False)
        self.strategy.reduce("SUM", wait(), axis=None)

    def prepare(self, model, task):
        with self.scope():
            compat.mend_replicas(model, task.signature(), self.workers)

    def dataset(self, batches):
        mine = batches.map(lambda *batch: self.part(batch)).unbatch()
        return self.strategy.distribute_datasets_from_function(lambda context: mine)


class OnJax(Distribution):
    """Devices by `keras.distribution`."""

    def __init__(self, settings, several):
        import jax

        if settings.devices > 1 and not os.environ.get("XLA_FLAGS"):
            with contextlib.suppress(RuntimeError):  # JAX has already found its devices
                jax.config.update("jax_num_cpu_devices", settings.devices)
        if several and settings.cluster != "slurm":
            config = json.loads(os.environ["TF_CONFIG"])
            hosts = [host for name in sorted(config["cluster"]) for host in config["cluster"][name]]
            before = [n for n in sorted(config["cluster"]) if n < config["task"]["type"]]
            index = sum(len(config["cluster"][n]) for n in before) + int(config["task"]["index"])
            keras.distribution.initialize(hosts[0], len(hosts), index)
        elif several:
            keras.distribution.initialize()
        self.index, self.workers = jax.process_index(), jax.process_count()
        devices = [d for i in range(self.workers) for d in jax.local_devices(i)[: settings.devices]]
        if len(devices) < settings.devices * self.workers:
            raise RunError(f"Expected {settings.devices} devices a process; found {len(devices)}")
        names = [f"{device.platform}:{device.id}" for device in devices]
        self.devices = settings.devices
        self.distribution = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)

    def barrier(self):
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("run")

    def scope(self):
        return self.distribution.scope()

    def dataset(self, batches):
        return batches.map(lambda *batch: self.part(batch)).unbatch()


def _local_devices(count):
    """Names of `count` devices: GPUs, or else parts of the CPU, which are slow but allow tests."""
    import tensorflow as tf

    gpus = len(tf.config.list_physical_devices("GPU"))
    if 0 < gpus < count:
        raise RunError(f"Expected --devices {count}; found {gpus} GPU")
    kind = "GPU" if gpus else "CPU"
    if kind == "CPU":
        cpu, part = (
            tf.config.list_physical_devices("CPU")[0],
            tf.config.LogicalDeviceConfiguration(),
        )
        tf.config.set_logical_device_configuration(cpu, [part] * count)
    return [f"/{kind}:{i}" for i in range(count)]
