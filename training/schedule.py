"""Learning rates that follow the budget, whether that is counted in steps or in minutes."""

import math

import keras
from keras import ops

from keras_tfmr.schedules import NoamSchedule


class BudgetSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then a fall to nothing that ends where the budget ends.

    Args:
        peak: The largest rate.
        warmup_steps: Number of updates until the peak.
        share: A variable, how much of the budget is used up, from 0 to 1.
        cosine: Half a cosine instead of a straight line.

    >>> schedule = BudgetSchedule(1e-3, 10, share=keras.Variable(0.5))
    >>> round(float(schedule(100)), 6)
    0.0005
    """

    def __init__(self, peak, warmup_steps, share, cosine=False):
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.share = share
        self.cosine = cosine

    def __call__(self, step):
        ramp = (ops.cast(step, "float32") + 1) / self.warmup_steps
        left = 1 - ops.convert_to_tensor(self.share)
        if self.cosine:
            left = 0.5 * (1 - ops.cos(math.pi * left))
        return self.peak * ops.minimum(ramp, left)

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "cosine": self.cosine}


def make_schedule(settings, d_model, share):
    """The schedule that a `TrainingConfig` asks for."""
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if settings.schedule == "noam":
        return NoamSchedule(d_model, warmup, scale=peak * math.sqrt(d_model * warmup))
    return BudgetSchedule(peak, warmup, share, cosine=settings.schedule == "cosine")
