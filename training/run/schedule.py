"""Learning rates that depend on the used share of the budget, in updates or minutes."""

import math

from keras import ops

from keras_tfmr.schedules import NoamSchedule


class BudgetSchedule:
    """Linear warm-up to a peak, then a linear fall to 0 at the end of the budget.

    Args:
        peak: The largest rate.
        warmup_steps: Number of updates until the peak.

    Call arguments:
        step: Number of updates made.
        share: Used share of the budget, from 0 to 1.

    >>> schedule = BudgetSchedule(1e-3, 10)
    >>> round(float(schedule(100, 0.5)), 6)
    0.0005
    """

    def __init__(self, peak, warmup_steps):
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step, share):
        ramp = (ops.cast(step, "float32") + 1) / self.warmup_steps
        return self.peak * ops.minimum(ramp, self.fall(1 - ops.cast(share, "float32")))

    def fall(self, left):
        """The rate as a share of the peak, for the share of the budget that is left."""
        return left


class CosineBudgetSchedule(BudgetSchedule):
    """A `BudgetSchedule` that falls along half a cosine.

    >>> schedule = CosineBudgetSchedule(1e-3, 10)
    >>> round(float(schedule(100, 0.25)), 6)
    0.000854
    """

    def fall(self, left):
        return 0.5 * (1 - ops.cos(math.pi * left))


class UpdatesSchedule:
    """A schedule of Keras, which depends on updates only.

    Args:
        schedule: A `keras.optimizers.schedules.LearningRateSchedule`.
    """

    def __init__(self, schedule):
        self.schedule = schedule

    def __call__(self, step, share):
        return self.schedule(step)


def make_schedule(settings, d_model):
    """The schedule that a resolved `TrainingConfig` asks for."""
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if settings.schedule == "noam":
        scale = peak * math.sqrt(d_model * warmup)
        return UpdatesSchedule(NoamSchedule(d_model, warmup, scale=scale))
    falling = {"linear": BudgetSchedule, "cosine": CosineBudgetSchedule}
    return falling[settings.schedule](peak, warmup)
