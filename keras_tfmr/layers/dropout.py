"""Dropout by one random byte for each number."""

from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers.options import KerasOptions

STEPS = 256  # one byte
WORDS = 16  # words of four bytes that are drawn in one row


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Dropout(keras.layers.Dropout):
    """Drops numbers in training, by one random byte each instead of a random float.

    Drawing random numbers is the largest part of dropout on a CPU, and with floats, dropout takes a
    fifth of a training step. With bytes, the rate is rounded to a multiple of 1/256, but not to 0
    (0.1 becomes 26/256). The kept numbers are scaled by the rounded rate, so that the expectation
    is exactly the input.

    Args:
        rate: Fraction dropped in training, in [0, 1).

    Call arguments:
        inputs: Tensor of any shape.

    Returns:
        Tensor of the same shape and dtype.

    Raises:
        ValueError: If the rate is out of its range, or a `noise_shape` is given; every number is
            dropped by itself.

    Reference: Srivastava et al. 2014, Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting (Journal of Machine Learning Research 15).

    >>> Dropout(0.5)(np.ones((2, 3), "float32"), training=False).shape
    TensorShape([2, 3])
    """

    position_wise = True

    def __init__(
        self,
        rate: float,
        noise_shape: Shape | None = None,
        seed: Any = None,
        **kwargs: Unpack[KerasOptions],
    ) -> None:
        if noise_shape is not None:
            raise ValueError(f"`noise_shape` must be None. Received: noise_shape={noise_shape}")
        super().__init__(_checks.rate("rate", rate), seed=seed, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = False) -> Nested:
        if not training or self.rate == 0:
            return inputs
        dropped = min(max(round(self.rate * STEPS), 1), STEPS - 1)
        kept = ops.greater_equal(self._bytes(inputs), np.array(dropped, "uint8"))
        # The scale goes to the mask, so that a gradient is multiplied once.
        return inputs * (ops.cast(kept, inputs.dtype) * (STEPS / (STEPS - dropped)))

    def _bytes(self, inputs):
        """Random bytes, uint8 of the shape of `inputs`."""
        shape = ops.shape(inputs)
        count = 1
        for size in shape:
            count = count * size
        # `view` needs a last axis whose size is known while tracing.
        words = keras.random.randint(
            ((count + 4 * WORDS - 1) // (4 * WORDS), WORDS),
            -(2**31),
            2**31 - 1,
            seed=self._seed(),
        )
        drawn = ops.reshape(ops.view(words, "uint8"), (-1,))
        return ops.reshape(drawn[:count], shape)

    def _seed(self):
        """The seed for Keras: the generator of the layer, or on torch a seed of torch's."""
        if keras.backend.backend() != "torch" or self.seed is not None:
            return self.seed_generator
        import torch

        # `keras.RematScope` computes a layer again for its gradient. It sets torch's generator
        # back for that, and not those of Keras, which would drop other numbers.
        return int(torch.randint(2**31 - 1, ()))
