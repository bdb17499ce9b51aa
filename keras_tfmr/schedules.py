"""Learning-rate schedules."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tfmr")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The paper's schedule: linear warm-up, then the inverse square root of the step.

    rate(n) = scale · d_model^-0.5 · min(n^-0.5, n · warmup_steps^-1.5), with n counted from 1, so
    that the rate of the first step is not 0.

    Args:
        d_model: Width of the model.
        warmup_steps: Number of steps until the peak, scale / √(d_model · warmup_steps).
        scale: Factor of the rate.

    Raises:
        ValueError: If an argument is not positive.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 5.3.

    >>> schedule = NoamSchedule(d_model=512, warmup_steps=4000)
    >>> round(float(schedule(3999)), 6)
    0.000699
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        for name, value in (
            ("d_model", d_model), ("warmup_steps", warmup_steps), ("scale", scale),
        ):  # fmt: skip
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0
        rate = ops.minimum(ops.rsqrt(n), n * self.warmup_steps**-1.5)
        return self.scale * self.d_model**-0.5 * rate

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak, then half a cosine down to a floor at `total_steps`.

    Args:
        peak: The largest rate, reached after `warmup_steps`.
        warmup_steps: Number of steps until the peak.
        total_steps: Number of steps until the floor, where the rate stays.
        floor: The final rate, as a share of the peak.

    Raises:
        ValueError: If an argument is out of range, or `warmup_steps` is not less than
            `total_steps`.

    Reference: Loshchilov and Hutter 2017, SGDR (arXiv 1608.03983).

    >>> schedule = WarmupCosine(peak=1e-3, warmup_steps=10, total_steps=100)
    >>> round(float(schedule(9)), 6)
    0.001
    """

    def __init__(self, peak, warmup_steps, total_steps, floor=0.0):
        if not peak > 0 or not warmup_steps > 0 or not 0 <= floor <= 1:
            raise ValueError(
                "Expected peak > 0, warmup_steps > 0 and 0 <= floor <= 1. Received: "
                f"peak={peak!r}, warmup_steps={warmup_steps!r}, floor={floor!r}"
            )
        if not total_steps > warmup_steps:
            raise ValueError(
                "Expected total_steps > warmup_steps. Received: "
                f"total_steps={total_steps!r}, warmup_steps={warmup_steps!r}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.floor = floor

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0
        share = (n - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        fall = 0.5 * (1 + ops.cos(math.pi * ops.clip(share, 0.0, 1.0)))
        rate = self.floor + (1 - self.floor) * fall
        return self.peak * ops.minimum(rate, n / self.warmup_steps)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "floor": self.floor,
        }
