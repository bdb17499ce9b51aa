"""The learning-rate schedule of the paper; Keras has the others, such as `CosineDecay`."""

from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Tensor


@keras.saving.register_keras_serializable(package="keras_tfmr")
class NoamSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The paper's schedule: linear warm-up, then the inverse square root of the step.

    rate(n) = scale · d_model^-0.5 · min(n^-0.5, n · warmup_steps^-1.5), with n counted from 1, so
    that the rate of the first step is not 0.

    Args:
        d_model: Width of the model.
        warmup_steps: Number of steps until the peak, scale / √(d_model · warmup_steps).
        scale: Factor of the rate.

    Call arguments:
        step: Number of updates before this one.

    Raises:
        ValueError: If an argument is not positive.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 5.3.

    >>> schedule = NoamSchedule(d_model=512, warmup_steps=4000)
    >>> round(float(schedule(3999)), 6)
    0.000699
    """

    def __init__(self, d_model: int, warmup_steps: float = 4000, scale: float = 1.0) -> None:
        self.d_model = _checks.number("d_model", d_model, positive=True)
        self.warmup_steps = _checks.number("warmup_steps", warmup_steps, positive=True)
        self.scale = _checks.number("scale", scale, positive=True)

    def __call__(self, step: Tensor) -> Tensor:
        n = ops.cast(step, "float32") + 1.0
        rate = ops.minimum(ops.rsqrt(n), n * self.warmup_steps**-1.5)
        return self.scale * self.d_model**-0.5 * rate

    def get_config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("d_model", "warmup_steps", "scale")}
