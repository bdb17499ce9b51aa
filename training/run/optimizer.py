"""The optimizer of a run: Adam with the settings' schedule and moving average."""

import math

import keras
from keras import ops

from keras_tfmr.schedules import NoamSchedule
from training.run.adam import Adam


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
