"""Learning rates that follow the budget, whether that is counted in steps or in minutes."""

import math

import keras
from keras import ops

from keras_tfmr.schedules import NoamSchedule


@keras.saving.register_keras_serializable(package="training")
class BudgetSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then a straight line to nothing that ends where the budget ends.

    Args:
        peak: The largest rate.
        warmup_steps: Number of updates until the peak.
        share: How much of the budget is used up, from 0 to 1: a variable, or a number for good.

    >>> schedule = BudgetSchedule(1e-3, 10, share=keras.Variable(0.5))
    >>> round(float(schedule(100)), 6)
    0.0005
    """

    def __init__(self, peak, warmup_steps, share):
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.share = share

    def __call__(self, step):
        ramp = (ops.cast(step, "float32") + 1) / self.warmup_steps
        left = self.fall(1 - ops.convert_to_tensor(self.share, "float32"))
        return self.peak * ops.minimum(ramp, left)

    def fall(self, left):
        """Share of the peak when so much of the budget is left: from 1 at 1 to 0 at 0."""
        return left

    def get_config(self):
        share = float(ops.convert_to_numpy(self.share))
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "share": share}


@keras.saving.register_keras_serializable(package="training")
class CosineBudgetSchedule(BudgetSchedule):
    """A `BudgetSchedule` that falls along half a cosine: slowly, fast, and slowly again.

    >>> schedule = CosineBudgetSchedule(1e-3, 10, share=keras.Variable(0.25))
    >>> round(float(schedule(100)), 6)
    0.000854
    """

    def fall(self, left):
        return 0.5 * (1 - ops.cos(math.pi * left))


def make_schedule(settings, d_model, share):
    """The schedule that a `TrainingConfig` asks for."""
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if settings.schedule == "noam":
        return NoamSchedule(d_model, warmup, scale=peak * math.sqrt(d_model * warmup))
    falling = {"linear": BudgetSchedule, "cosine": CosineBudgetSchedule}
    return falling[settings.schedule](peak, warmup, share)
