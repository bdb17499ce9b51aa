"""Training with JAX: data parallelism over the devices of one process or of several."""

import contextlib
import math
import os

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from training.run.files import RunError
from training.run.trainer import BETA_1, BETA_2, CONTROL, EPSILON, SUMS, Trainer
from training.run.workers import BaseWorkers

AXIS = "batch"


class Workers(BaseWorkers):
    """Workers that `jax.distributed` connects: see `BaseWorkers`.

    Arrays of rows are divided between all devices of all processes; each device has all weights.
    """

    finishes = False  # exports are graphs of TensorFlow
    lost = jax.errors.JaxRuntimeError

    def _join(self, cluster, timeout):
        if self.count > 1:
            jax.distributed.initialize(
                cluster.addresses[0], self.count, self.index, initialization_timeout=int(timeout)
            )
        mesh = Mesh(np.array(_devices(self.count, self.devices)), (AXIS,))
        names = [f"{device.platform}:{device.id}" for device in mesh.devices]
        self.distribution = keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)
        self._of_rows = NamedSharding(mesh, PartitionSpec(AXIS))

    def scope(self):
        return self.distribution.scope()

    def trainer(self, *args, reduce_dtype="float32", **options):
        if reduce_dtype != "float32":
            raise RunError(
                "--reduce_dtype needs the TensorFlow backend; with JAX, XLA sums the gradients. "
                f"Received: {reduce_dtype}"
            )
        return JaxTrainer(*args, workers=self, **options)

    def compiled(self, function, model):
        variables = model.variables

        @jax.jit
        def run(values, ids):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(ids)

        return lambda ids: np.asarray(run(_values(variables), ids))

    def rows(self, array):
        """The rows of all workers as one array, made of the rows of each."""
        return jax.make_array_from_process_local_data(self._of_rows, np.asarray(array))

    def _rows(self, row):
        return multihost_utils.process_allgather(row)


def _devices(processes, each):
    """`each` devices of each process, in the order of processes."""
    if each > 1 and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # JAX has already initialised its devices
            jax.config.update("jax_num_cpu_devices", each)
    of_processes = [jax.local_devices(process_index=i)[:each] for i in range(processes)]
    if any(len(devices) < each for devices in of_processes):
        raise RunError(
            f"Expected {each} devices in each of {processes} processes; JAX found "
            f"{[len(devices) for devices in of_processes]}: change --devices"
        )
    return [device for devices in of_processes for device in devices]


class JaxTrainer(Trainer):
    """A `Trainer` whose updates XLA compiles, for all devices at once.

    Each shape of batch is compiled when it first occurs.

    Args:
        workers: The `Workers`.
        **options: As for `Trainer`.
    """

    def __init__(self, *args, workers, **options):
        self.workers = workers
        with workers.scope(), workers.answering():
            super().__init__(*args, **options)
        self.use_noise(Noise(self.seed))
        self._gradient_of = jax.jit(self._gradient)
        self._applied = jax.jit(self._apply)

    def gradient(self, batch, number):
        rows = jax.tree.map(self.workers.rows, batch)
        halves = np.array([number >> 32, number & 0xFFFFFFFF], "uint32")
        others = _values(self.model.non_trainable_variables)
        with self.workers.answering():
            return self._gradient_of(_values(self.weights), others, rows, halves)

    def add(self, total, part):
        return jax.tree.map(jnp.add, total, part)

    def apply(self, total, control):
        devices = self.workers.devices
        of_devices = self.workers.rows(np.tile(control / devices, (devices, 1)))
        slots = [self.weights, self.momentums, self.velocities, self.averages]
        with self.workers.answering():
            new, vector = self._applied(
                [_values(slot) for slot in slots], self.updates.value, total, of_devices
            )
            for slot, values in zip((*slots, [self.updates]), new, strict=True):
                for variable, value in zip(slot, values, strict=True):
                    variable.assign(value)
            return np.asarray(vector)

    def _gradient(self, weights, others, batch, number):
        """Gradients of the summed loss, and `SUMS`, over the rows of all workers."""
        variables = [*self.weights, *self.model.non_trainable_variables]

        def loss(weights):
            self.noise.begin(number)
            given = list(zip(variables, [*weights, *others], strict=True))
            with keras.StatelessScope(state_mapping=given):
                sums = self.task.sums(self.model, batch)
            return sums[0], jnp.stack(sums)

        return jax.grad(loss, has_aux=True)(weights)

    def _apply(self, slots, updates, total, control):
        gradients, sums = total
        vector = jnp.concatenate([sums, jnp.sum(control, axis=0)])
        scale = 1 / jnp.maximum(vector[1], 1)
        norm = scale * jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
        made = jnp.isfinite(norm) & jnp.isfinite(vector[0])
        if self.clip_norm:
            scale *= jnp.minimum(1.0, self.clip_norm / jnp.maximum(norm, 1e-12))
        rate = self.schedule(updates, vector[len(SUMS) + CONTROL.index("share")])
        rate = jnp.asarray(rate, "float32")
        new = self._adam(slots, [scale * gradient for gradient in gradients], rate, updates + 1)
        # An update that is not finite changes nothing.
        new = jax.tree.map(lambda new, old: jnp.where(made, new, old), new, slots)
        new.append([updates + made])
        return new, jnp.concatenate([vector, jnp.stack([norm, made.astype("float32"), rate])])

    def _adam(self, slots, gradients, rate, step):
        """The new weights, momentums, velocities and averages."""
        weights, momentums, velocities, averages = slots
        step = step.astype("float32")
        rate = rate * jnp.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
        momentums = [m + (1 - BETA_1) * (g - m) for m, g in zip(momentums, gradients, strict=True)]
        velocities = [
            v + (1 - BETA_2) * (g * g - v) for v, g in zip(velocities, gradients, strict=True)
        ]
        weights = [
            w - rate * m / (jnp.sqrt(v) + EPSILON)
            for w, m, v in zip(weights, momentums, velocities, strict=True)
        ]
        decay = jnp.minimum(self.average, (step - 1) / (step + 8))
        averages = [a + (1 - decay) * (w - a) for a, w in zip(averages, weights, strict=False)]
        return [weights, momentums, velocities, averages]


class Noise:
    """The noise of dropout as a function of (seed, batch, dropout layer, place in the batch).

    The same numbers are dropped however many devices share a batch.

    Args:
        seed: int.
    """

    def __init__(self, seed):
        self.seed = seed

    def begin(self, number):
        """Starts a pass over the batch with this number, uint32 `[2]`."""
        self.number, self.draws = number, 0

    def bytes(self, inputs):
        """uint8 of the shape of `inputs`, whose first axis are rows that devices share."""
        rows, *others = inputs.shape
        count = math.prod(others)
        # JAX computes as much for a random byte as for a word of four.
        words = jax.random.bits(self._key(), (rows, -(-count // 4)), "uint32")
        drawn = jnp.reshape(jax.lax.bitcast_convert_type(words, "uint8"), (rows, -1))
        return jnp.reshape(drawn[:, :count], inputs.shape)

    def next(self, ordered=True):
        """A seed, as `keras.random.SeedGenerator.next` gives."""
        return jax.random.key_data(self._key())

    def _key(self):
        self.draws += 1  # layers draw in the same order in each pass
        key = jax.random.fold_in(jax.random.key(self.seed), self.draws)
        return jax.random.fold_in(jax.random.fold_in(key, self.number[0]), self.number[1])


def _values(variables):
    return [variable.value for variable in variables]
