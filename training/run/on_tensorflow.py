"""Training with TensorFlow: on one device, the devices of a host, or those of several hosts."""

import numpy as np
import tensorflow as tf

from training.run.files import RunError
from training.run.noise import RowNoise
from training.run.trainer import BETA_1, BETA_2, CONTROL, EPSILON, SUMS, Trainer
from training.run.workers import BaseWorkers


class Workers(BaseWorkers):
    """Workers that a strategy of TensorFlow connects: see `BaseWorkers`."""

    lost = tf.errors.OpError

    def _join(self, cluster, timeout):
        self.strategy = self._strategy(cluster)
        if self.strategy.num_replicas_in_sync != self.count * self.devices:
            raise RunError(
                f"Expected {self.devices} devices on each of {self.count} workers; TensorFlow "
                f"found {self.strategy.num_replicas_in_sync} in total: change --devices"
            )

    def _strategy(self, cluster):
        if self.devices > 1:
            local = local_devices(self.devices)
        if self.count > 1:
            options = tf.distribute.experimental.CommunicationOptions(
                implementation=tf.distribute.experimental.CommunicationImplementation.AUTO
            )
            return tf.distribute.MultiWorkerMirroredStrategy(
                cluster_resolver=cluster.resolver(), communication_options=options
            )
        if self.devices > 1:
            return tf.distribute.MirroredStrategy(local)
        return tf.distribute.get_strategy()

    def scope(self):
        return self.strategy.scope()

    def trainer(self, *args, **options):
        return TensorFlowTrainer(*args, workers=self, **options)

    def compiled(self, function, model):
        # Traced once for all shapes. Without AutoGraph, whose conversion takes seconds and is not
        # needed: the loops are Keras's.
        signature = [tf.TensorSpec([None, None], tf.int32)]
        graph = tf.function(function, input_signature=signature, autograph=False)
        return lambda ids: graph(ids).numpy()

    def _rows(self, row):
        table = np.zeros([self.count, len(row)], np.int32)
        table[self.index] = row

        def of_replica():
            context = tf.distribute.get_replica_context()
            here = tf.constant(table)
            if self.devices > 1:  # only one of this worker's devices adds its row
                here *= tf.cast(context.replica_id_in_sync_group % self.devices == 0, here.dtype)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, here)

        summed = tf.function(lambda: self.strategy.run(of_replica), autograph=False)()
        return self.strategy.experimental_local_results(summed)[0].numpy()


def local_devices(count):
    """Names of `count` devices: GPUs, or else parts of the CPU, which are slow but allow tests."""
    kind = "GPU" if len(tf.config.list_physical_devices("GPU")) >= count else "CPU"
    if kind == "CPU":
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        try:
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], parts
            )
        except RuntimeError as error:
            raise RunError(f"Cannot divide the CPU into {count} devices: {error}") from error
    return [f"/{kind}:{i}" for i in range(count)]


class TensorFlowTrainer(Trainer):
    """A `Trainer` whose steps are graphs, run on every device of a strategy.

    They do not use XLA: on a CPU it gains nothing, and it would compile each shape of batch.

    Args:
        workers: The `Workers`.
        reduce_dtype: The type in which the gradients are sent and summed.
        **options: As for `Trainer`.
    """

    def __init__(self, *args, workers, reduce_dtype="float32", **options):
        self.workers, self.strategy = workers, workers.strategy
        self.reduce_dtype = reduce_dtype
        with workers.scope(), workers.answering():
            super().__init__(*args, **options)
        self.use_noise(RowNoise(self.seed))
        self._graphs = {}

    def gradient(self, batch, number):
        batch = tf.nest.map_structure(tf.convert_to_tensor, batch)
        with self.workers.answering():
            return self._run("gradient", self._gradient, batch, tf.constant(number, tf.int64))

    def add(self, total, part):
        return self._run("add", lambda *pair: tf.nest.map_structure(tf.add, *pair), total, part)

    def apply(self, total, control):
        with self.workers.answering():
            values = self._run("apply", self._apply, total, tf.constant(control))
            return self.strategy.experimental_local_results(values)[0].numpy()

    def _run(self, name, of_replica, *args):
        """Runs a function on every device, as a graph that is traced once for all shapes."""
        if name not in self._graphs:
            # Without AutoGraph, which takes seconds and finds nothing to convert.
            self._graphs[name] = tf.function(
                lambda *args: self.strategy.run(of_replica, args),
                autograph=False,
                reduce_retracing=True,
            )
        return self._graphs[name](*args)

    def _gradient(self, batch, number):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        if self.workers.devices > 1:
            batch = self._rows_of(batch, replica)
        self.noise.begin(number, replica)
        with tf.GradientTape() as tape:
            sums = self.task.sums(self.model, batch)
        gradients = tape.gradient(sums[0], [weight.value for weight in self.weights])
        # Dense, because the gradient of an embedding holds only the rows that were read.
        return [tf.convert_to_tensor(gradient) for gradient in gradients], tf.stack(sums)

    def _rows_of(self, batch, replica):
        """The rows of one of this host's devices."""
        place = replica % self.workers.devices

        def cut(rows):
            each = tf.shape(rows)[0] // self.workers.devices
            return rows[place * each : (place + 1) * each]

        return tf.nest.map_structure(cut, batch)

    def _apply(self, total, control):
        # The identity puts them on the device that the reduction needs.
        gradients, sums = tf.nest.map_structure(tf.identity, total)
        vector = tf.concat([sums, control / self.workers.devices], axis=0)
        if self.strategy.num_replicas_in_sync > 1:
            sent = [tf.cast(gradient, self.reduce_dtype) for gradient in gradients]
            # A call for each, since a call joins its tensors and so needs a single type.
            sent, vector = self._sum(sent), self._sum(vector)
            gradients = [tf.cast(gradient, "float32") for gradient in sent]
        scale = 1 / tf.maximum(vector[1], 1)
        norm = scale * tf.linalg.global_norm(gradients)
        made = tf.math.is_finite(norm) & tf.math.is_finite(vector[0])
        if self.clip_norm:
            scale *= tf.minimum(1.0, self.clip_norm / tf.maximum(norm, 1e-12))
        scale = tf.where(made, scale, 0.0)
        gradients = [tf.math.multiply_no_nan(gradient, scale) for gradient in gradients]
        share = vector[len(SUMS) + CONTROL.index("share")]
        rate = tf.convert_to_tensor(self.schedule(self.updates.value, share))
        made = tf.cast(made, "float32")
        tf.distribute.get_replica_context().merge_call(self._adam, args=(gradients, rate, made))
        return tf.concat([vector, tf.stack([norm, made, rate])], axis=0)

    def _sum(self, values):
        """Their sum over all devices and workers."""
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)

    def _adam(self, strategy, gradients, rate, made):
        """Adam by TensorFlow's fused operation, in half the time of a dozen elementwise ones.

        If the update is skipped, decays of 1 and a rate of 0 change nothing.
        """
        step = tf.cast(self.updates.value, "float32") + 1
        slots = [self.weights, self.momentums, self.velocities, self.averages or self.weights]
        for gradient, *variables in zip(gradients, *slots, strict=True):
            variable, *beside = (variable.value for variable in variables)
            strategy.extended.update(
                variable, self._adam_of_one, args=(gradient, *beside, rate, made, step), group=False
            )
        strategy.extended.update(
            self.updates.value,
            lambda count, made: count.assign_add(tf.cast(made, "int32")),
            args=(made,),
            group=False,
        )

    def _adam_of_one(self, variable, gradient, momentum, velocity, average, rate, made, step):
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.handle,
            v=velocity.handle,
            beta1_power=tf.pow(BETA_1, step),
            beta2_power=tf.pow(BETA_2, step),
            lr=tf.cast(rate, "float32") * made,
            beta1=1 - made * (1 - BETA_1),
            beta2=1 - made * (1 - BETA_2),
            epsilon=EPSILON,
            grad=gradient,
        )
        if self.average:
            decay = tf.minimum(self.average, (step - 1) / (step + 8))
            tf.raw_ops.ResourceApplyGradientDescent(
                var=average.handle, alpha=(1 - decay) * made, delta=average - variable
            )
