"""Learning rates that follow the budget, whether that is counted in updates or in minutes."""

import math

from keras import ops

from keras_tfmr.schedules import NoamSchedule


class BudgetSchedule:
    """Linear warm-up to a peak, then a straight line to nothing that ends where the budget ends.

    Args:
        peak: The largest rate.
        warmup_steps: Number of updates until the peak.

    Call arguments:
        step: Number of updates made.
        share: How much of the budget is used up, from 0 to 1.

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
        """Share of the peak when so much of the budget is left: from 1 at 1 to 0 at 0."""
        return left


class CosineBudgetSchedule(BudgetSchedule):
    """A `BudgetSchedule` that falls along half a cosine: slowly, fast, and slowly again.

    >>> schedule = CosineBudgetSchedule(1e-3, 10)
    >>> round(float(schedule(100, 0.25)), 6)
    0.000854
    """

    def fall(self, left):
        return 0.5 * (1 - ops.cos(math.pi * left))


class UpdatesSchedule:
    """A schedule of Keras, which knows of updates alone.

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
