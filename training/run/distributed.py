"""Several devices and several hosts: data parallelism by `tf.distribute` or `keras.distribution`.

Each worker reads its own rows of every batch, so that the weights do not depend on the number of
workers, except for rounding and dropout. Restarts belong to Kubernetes, Kubeflow or SLURM.
"""

import contextlib
import json
import os

import keras
import tensorflow as tf

from training.command.disk import RunError


def connect(settings):
    """The `Distribution` that settings and environment ask for.

    `TF_CONFIG`, as Kubeflow and Vertex AI set it, names the hosts; with `--cluster slurm`, the
    variables of `srun` do.
    """
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise RunError(f"Training runs on TensorFlow and JAX. Received: KERAS_BACKEND={backend}")
    hosts = hosts_of(os.environ.get("TF_CONFIG"))
    if hosts and settings.cluster:
        raise RunError("TF_CONFIG has no effect beside --cluster slurm: unset it")
    if settings.cluster and "SLURM_PROCID" not in os.environ:
        raise RunError("--cluster slurm needs the variables that srun sets, such as SLURM_PROCID")
    several = len(hosts) > 1 or settings.cluster == "slurm"
    if not several and settings.devices == 1:
        return Distribution()
    if several:
        check_hosts(settings, backend)
    if backend == "jax":
        return JaxDevices(settings.devices)
    if settings.clip_norm:
        raise RunError(
            "With several devices or hosts on TensorFlow, Keras clips the gradients of each before "
            "it adds them: give --set clip_norm=0"
        )
    return Hosts(settings.cluster) if several else TensorFlowDevices(settings.devices)


def check_hosts(settings, backend):
    """Raises a RunError for what several hosts cannot do."""
    if not (settings.steps or settings.epochs):
        raise RunError("Several hosts cannot agree on --minutes: give --steps")
    if backend == "jax":
        raise RunError("Several hosts train on TensorFlow only. Received: KERAS_BACKEND=jax")
    if settings.devices > 1:
        raise RunError("--devices has no effect with several hosts: start a worker for each device")


def hosts_of(text):
    """The hosts that the content of TF_CONFIG names, all of them workers; none without it."""
    try:
        cluster = json.loads(text or "{}").get("cluster", {})
    except (ValueError, AttributeError) as error:
        raise RunError(f"Cannot read TF_CONFIG ({error}): {text}") from error
    if cluster.keys() - {"worker"}:
        raise RunError(f"TF_CONFIG must be of workers alone. Received: {text}")
    return cluster.get("worker", [])


class Distribution:
    """One device; the base of the others. Worker 0 is the chief."""

    index, workers, devices = 0, 1, 1

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

    def build(self, model, batches):
        """Builds what a compiled model has to build before `fit`, from a dataset of batches."""

    def dataset(self, batches):
        """The input of `fit`, from a dataset of batches."""
        return batches


class OnTensorFlow(Distribution):
    """Devices by `tf.distribute`: the base of both, which have its `strategy`."""

    def scope(self):
        return self.strategy.scope()

    def dataset(self, batches):
        parts = batches.map(lambda *batch: split(batch, self.replicas)).unbatch()
        own = parts.shard(self.workers, self.index)
        return self.strategy.distribute_datasets_from_function(lambda context: own)


class TensorFlowDevices(OnTensorFlow):
    """Devices of this host by `tf.distribute`."""

    def __init__(self, devices):
        self.devices = devices
        self.strategy = tf.distribute.MirroredStrategy(_local_devices(devices))

    def build(self, model, batches):
        """Builds loss and metrics, which `fit` would build on the mean of the replicas' ids."""
        model.test_on_batch(*next(iter(batches)))


class Hosts(OnTensorFlow):
    """Hosts with one device each by `tf.distribute`."""

    def __init__(self, cluster):
        resolvers = tf.distribute.cluster_resolver
        if cluster == "slurm":
            resolver = resolvers.SlurmClusterResolver()
            resolver.cluster_spec()  # shows this process its own GPUs
        else:
            resolver = resolvers.TFConfigClusterResolver()
        tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:1], "GPU")
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
        self.index = resolver.task_id or 0
        self.workers = self.strategy.num_replicas_in_sync

    def barrier(self):
        wait = tf.function(lambda: self.strategy.run(lambda: tf.constant(1.0)), autograph=False)
        self.strategy.reduce("SUM", wait(), axis=None)

    def build(self, model, batches):
        """Builds loss and metrics, and turns off what Keras cannot do with several hosts.

        It takes the mean of the metrics over their first axis, so they get one (keras#20585). And
        it builds from the mean of the hosts' ids, which fails: by then, all is built.
        """
        train_step, test_step = model.train_step, model.test_step
        model.train_step = lambda data: {n: v[None] for n, v in train_step(data).items()}
        model.test_step = lambda data: {n: v[None] for n, v in test_step(data).items()}
        model.test_on_batch(*next(iter(batches)))
        model._maybe_symbolic_build = lambda **given: None  # private: no public way leads past it


def split(batch, parts):
    """The rows of each tensor of a batch, split into `parts`: `[parts, rows, …]`."""

    def cut(rows):
        return tf.reshape(rows, tf.concat([[parts, -1], tf.shape(rows)[1:]], axis=0))

    return tf.nest.map_structure(cut, batch)


class JaxDevices(Distribution):
    """Devices of this host by `keras.distribution`."""

    def __init__(self, devices):
        import jax

        if devices > 1 and not os.environ.get("XLA_FLAGS"):
            with contextlib.suppress(RuntimeError):  # JAX has already found its devices
                jax.config.update("jax_num_cpu_devices", devices)
        found = jax.local_devices()[:devices]
        if len(found) < devices:
            raise RunError(f"Expected --devices {devices}; found {len(found)}")
        names = [f"{device.platform}:{device.id}" for device in found]
        self.devices = devices
        self.distribution = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)

    def scope(self):
        return self.distribution.scope()


def _local_devices(count):
    """Names of `count` devices: GPUs, or else parts of the CPU, which are slow but allow tests."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    if 0 < gpus < count:
        raise RunError(f"Expected --devices {count}; found {gpus} GPU")
    if gpus:
        return [f"/GPU:{i}" for i in range(count)]
    (cpu, *_), part = tf.config.list_physical_devices("CPU"), tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [part] * count)
    return [f"/CPU:{i}" for i in range(count)]
