"""A translation model with a convolutional encoder, and RNNsearch's decoder."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Shape, Tensor
from keras_tfmr.layers import LearnedPositions
from keras_tfmr.layers.masking import masked_mean
from keras_tfmr.layers.options import KerasOptions
from keras_tfmr.recurrent.gru import RecurrentLayer
from keras_tfmr.recurrent.recurrent_configs import ConvolutionalConfig
from keras_tfmr.recurrent.rnnsearch import AlignedDecoder
from keras_tfmr.recurrent.seq2seq import RecurrentTranslator


@keras.saving.register_keras_serializable(package="keras_tfmr")
class ConvolutionStack(RecurrentLayer):
    """A projection and a stack of residual convolutions, z ← z + tanh(conv(z)).

    Every position sees `num_layers * (kernel_size - 1) + 1` positions around it, its receptive
    field. Padding is set to zero before each convolution, like positions beyond the ends.

    Args:
        units: Width of the output.
        num_layers: Number of convolutions.
        kernel_size: Number of positions that one convolution sees; odd.

    Call arguments:
        x: Tensor `[batch, length, width]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`.

    Returns:
        Tensor `[batch, length, units]`, zero at padding.

    Raises:
        ValueError: If a size is not positive, the kernel is even, or `x` is not a sequence of
            vectors.

    Reference: Gehring, Auli, Grangier, Dauphin 2016, A Convolutional Encoder Model for Neural
    Machine Translation (arXiv 1611.02344), section 3.2.

    >>> stack = ConvolutionStack(4, num_layers=3)
    >>> stack(np.ones((2, 5, 6), "float32")).shape, stack.receptive_field
    (TensorShape([2, 5, 4]), 7)
    """

    def __init__(
        self, units: int, num_layers: int, kernel_size: int = 3, **kwargs: Unpack[KerasOptions]
    ) -> None:
        super().__init__(units, **kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="x")
        self.num_layers = _checks.integer("num_layers", num_layers)
        self.kernel_size = _checks.integer("kernel_size", kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"`kernel_size` must be odd. Received: kernel_size={kernel_size}")
        self.input_dense = self.make_dense(units, "input")
        self.convolutions = [
            keras.layers.Conv1D(
                units,
                kernel_size,
                padding="same",
                activation="tanh",
                name=f"convolution_{i}",
                **self.part_options(),
            )
            for i in range(num_layers)
        ]

    @property
    def receptive_field(self) -> int:
        """The number of positions that an output depends on, its own included."""
        return self.num_layers * (self.kernel_size - 1) + 1

    def build(self, x_shape: Shape) -> None:
        self.input_dense.build(x_shape)
        for convolution in self.convolutions:
            convolution.build((*x_shape[:-1], self.units))

    def call(self, x: Tensor, mask: Tensor | None = None) -> Nested:
        mask = _checks.mask("mask", mask, batch=x.shape[0], length=x.shape[1])
        real = 1 if mask is None else ops.cast(mask, self.compute_dtype)[:, :, None]
        z = self.input_dense(x) * real  # [batch, length, units]
        for convolution in self.convolutions:
            z = (z + convolution(z)) * real
        return z

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "kernel_size": self.kernel_size,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class ConvolutionalEncoder(RecurrentLayer):
    """Annotations [a_j ; c_j] of two convolution stacks: a for the alignment, c for the contexts.

    Learned position vectors are added to the embedded words.

    Args:
        units: Width of each half.
        alignment_layers: Number of convolutions of the alignment's stack (the paper's CNN-a).
        context_layers: Number of convolutions of the contexts' stack (CNN-c).
        kernel_size: Number of positions that one convolution sees; odd.
        max_length: Number of positions that have a vector.

    Call arguments:
        x: Tensor `[batch, source, width]`, embedded words.
        mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of `x`.

    Returns:
        Tensor `[batch, source, 2 * units]`, zero at padding.

    Raises:
        ValueError: If a size is not positive, the kernel is even, `x` is not a sequence of
            vectors or longer than `max_length`.

    Reference: Gehring et al. 2016 (arXiv 1611.02344), section 3.

    >>> ConvolutionalEncoder(4, 6, 3)(np.ones((2, 5, 6), "float32")).shape
    TensorShape([2, 5, 8])
    """

    def __init__(
        self, units: int, alignment_layers: int, context_layers: int, kernel_size: int = 3,
        max_length: int = 512, **kwargs: Unpack[KerasOptions],
    ) -> None:  # fmt: skip
        super().__init__(units, **kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="x")
        self.alignment_layers, self.context_layers = alignment_layers, context_layers
        self.kernel_size = kernel_size
        self.max_length = _checks.integer("max_length", max_length)
        # As wide as the words, which `build` sees.
        self.positions = LearnedPositions(max_length, 1, name="positions", **self.part_options())
        self.alignment_stack = self._stack(alignment_layers, "alignment")
        self.context_stack = self._stack(context_layers, "context")

    def _stack(self, num_layers, name):
        size = self.units, num_layers, self.kernel_size
        return ConvolutionStack(*size, name=name, **self.part_options())

    def build(self, x_shape: Shape) -> None:
        self.positions.d_model = self.positions.embedding.output_dim = x_shape[-1]
        self.positions.build((x_shape[1],))
        self.alignment_stack.build(x_shape)
        self.context_stack.build(x_shape)

    def call(self, x: Tensor, mask: Tensor | None = None) -> Nested:
        x = ops.cast(x, self.compute_dtype)
        x = x + self.positions(ops.arange(ops.shape(x)[1], dtype="int32"))  # [batch, source, width]
        stacks = (self.alignment_stack, self.context_stack)
        return ops.concatenate([stack(x, mask=mask) for stack in stacks], axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "alignment_layers": self.alignment_layers,
            "context_layers": self.context_layers,
            "kernel_size": self.kernel_size,
            "max_length": self.max_length,
        }


@keras.saving.register_keras_serializable(package="keras_tfmr")
class ConvolutionalDecoder(AlignedDecoder):
    """An `AlignedDecoder` that aligns with a_j and sums c_j, the halves of the annotations.

    s_0 = tanh(W_s c̄) with the mean c̄ over the real words. The alignment is that of RNNsearch, so
    that the models differ only in the encoder.

    Contexts have half the width of the annotations, which are those of a `ConvolutionalEncoder`.
    The rest is as in `AlignedDecoder`.

    Reference: Gehring et al. 2016 (arXiv 1611.02344), section 3; Bahdanau, Cho, Bengio 2015
    (arXiv 1409.0473), appendix A.2.2.

    >>> decoder = ConvolutionalDecoder(units=6, alignment_units=5)
    >>> y, annotations = np.ones((2, 3, 4), "float32"), np.ones((2, 7, 8), "float32")
    >>> decoder(y, annotations).shape
    TensorShape([2, 3, 14])
    """

    def views(self, annotations: Tensor) -> tuple[Tensor, Tensor]:
        n = annotations.shape[-1] // 2
        return annotations[:, :, :n], annotations[:, :, n:]

    def start(self, annotations: Tensor, annotations_mask: Tensor | None = None) -> Nested:
        _, values = self.views(annotations)
        return self.start_dense(masked_mean(values, annotations_mask))


@keras.saving.register_keras_serializable(package="keras_tfmr")
class ConvolutionalModel(RecurrentTranslator):
    """RNNsearch with a convolutional encoder: from source and target ids to logits.

    Like a Transformer's, the encoder computes all positions at once, but a position sees only its
    neighbourhood: it takes n / (kernel_size − 1) layers to connect two words that are n apart. The
    decoder is a loop over positions. The model is used like a `TranslationModel`.

    Args:
        config: A `ConvolutionalConfig`.

    Reference: Gehring, Auli, Grangier, Dauphin 2016, A Convolutional Encoder Model for Neural
    Machine Translation (arXiv 1611.02344).

    >>> from keras_tfmr.recurrent import ConvolutionalConfig
    >>> config = ConvolutionalConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> model = ConvolutionalModel(config)
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """

    config_class = ConvolutionalConfig

    def __init__(self, config: ConvolutionalConfig, name: str = "convolutional") -> None:
        encoder = ConvolutionalEncoder(
            config.units, config.alignment_layers, config.context_layers, config.kernel_size,
            config.max_length, name="encoder",
        )  # fmt: skip
        decoder = ConvolutionalDecoder(config.units, config.alignment_units, name="decoder")
        super().__init__(config, encoder, decoder, name)
