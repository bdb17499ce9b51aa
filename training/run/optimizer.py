"""The optimizer of a run: Adam with the settings' schedule, and averages that are useful early."""

import math

import keras
from keras import ops

from keras_tfmr.schedules import NoamSchedule


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then half a cosine down to 0 at the end of the run.

    In place of Keras's `CosineDecay`: the number of steps is a variable, which `--minutes` sets
    later, and a run shorter than its warm-up falls to 0 too. The cosine begins when the warm-up or
    a quarter of the steps is over, whichever is first; before, the rate does not depend on the
    number of steps. Where the warm-up still rises then, the rate is the lower of the two.

    Args:
        peak: The largest rate.
        warmup_steps: Number of steps until the peak.
        total_steps: Number of steps, a number or a scalar variable; 0 if it is not known yet.

    >>> round(float(WarmupCosine(1e-3, 10, total_steps=110)(60)), 6)
    0.0005
    """

    def __init__(self, peak, warmup_steps, total_steps=0):
        self.peak, self.warmup_steps, self.total_steps = peak, warmup_steps, total_steps

    def __call__(self, step):
        step, total = (ops.cast(number, "float32") for number in (step, self.total_steps))
        rise = (step + 1) / self.warmup_steps
        begin = ops.minimum(total / 4, float(self.warmup_steps))
        share = ops.clip((step - begin) / ops.maximum(total - begin, 1.0), 0.0, 1.0)
        fall = 0.5 * (1 + ops.cos(math.pi * share))
        return self.peak * ops.minimum(rise, ops.where(total > 0, fall, 1.0))


class Adam(keras.optimizers.Adam):
    """Keras's Adam, whose moving average of the weights is useful from the start.

    Its decay grows as n / (n + 9) over n updates up to `ema_momentum`. With Keras's constant 0.999
    the average still consists of the first weights after hundreds of updates.

    On TensorFlow, a weight is updated by one operation, `ResourceApplyAdam`. Keras's own update is
    a dozen, each of which reads and writes an array of the weight's size; JAX compiles them to one.

    Attributes:
        total_batches: A variable, of the optimizer so that JAX does not make it a constant: the
            `total_steps` of a `WarmupCosine`.
    """

    def __init__(self, learning_rate, **options):
        super().__init__(learning_rate, **options)
        self.total_batches = self.add_variable((), "zeros", "float32", name="total_batches")
        learning_rate.total_steps = self.total_batches

    def update_step(self, gradient, variable, learning_rate):
        if keras.backend.backend() != "tensorflow":
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        place, step = self._get_variable_index(variable), tf.cast(self.iterations + 1, "float32")
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[place].value.handle,
            v=self._velocities[place].value.handle,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(learning_rate, "float32"),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),
        )

    def _update_model_variables_moving_average(self, trainable_variables):
        updates = ops.cast(self.iterations, "float32")
        decay = ops.minimum(self.ema_momentum, updates / (updates + 9))
        # Keras calls this after each batch, not after each update.
        rate = 1 - decay ** (1 / (self.gradient_accumulation_steps or 1))
        averages = self._model_variables_moving_average
        for weight, average in zip(trainable_variables, averages, strict=True):
            average.assign(average + rate * (weight - average))


def make_optimizer(settings, width):
    """The optimizer that resolved settings ask for; `noam` needs the model's width."""
    # Keras's schedules count batches, not updates.
    batches = settings.gradient_accumulation_steps
    peak, warmup = settings.learning_rate, settings.warmup_steps * batches
    if settings.schedule == "noam":
        schedule = NoamSchedule(width, warmup, scale=peak * math.sqrt(width * warmup))
    else:
        schedule = WarmupCosine(peak, warmup)
    return Adam(
        schedule,
        beta_1=0.9, beta_2=0.98, epsilon=1e-9,  # arXiv 1706.03762, section 5.3
        global_clipnorm=settings.clip_norm or None,
        use_ema=settings.ema > 0,
        ema_momentum=settings.ema,
        gradient_accumulation_steps=batches if batches > 1 else None,
    )  # fmt: skip


def assign_average(model, other):
    """Gives the moving averages of a model's trainable weights to another model of its config."""
    slots = [v for v in model.optimizer.variables if v.path.endswith("_average")]
    values = slots if model.optimizer.use_ema else model.trainable_variables
    for weight, average in zip(other.trainable_variables, values, strict=True):
        weight.assign(ops.convert_to_numpy(average))
