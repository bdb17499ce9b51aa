"""The configs of the recurrent and convolutional models."""

import dataclasses
from typing import ClassVar

from keras_tfmr import _checks
from keras_tfmr.models.transformer_config import ModelConfig


def _sizes(embedding_dim, units, maxout_units, *alignment_units):
    sizes = {"embedding_dim": embedding_dim, "units": units, "maxout_units": maxout_units}
    return sizes | dict(zip(["alignment_units"], alignment_units, strict=False))


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig(ModelConfig):
    """Everything that a `Seq2SeqModel` is built from.

    Args:
        source_vocab: Number of source token IDs.
        target_vocab: Number of target token IDs.
        embedding_dim: Width of an embedded word.
        units: Width of both states and of the summary.
        maxout_units: Width of the maxout layer.
        dropout_rate: Fraction of the embedded words and of the maxout layer dropped in training.
        joint_vocab: One embedding for both sides, which then have one vocabulary.

    Raises:
        ValueError: If a field is out of range, or a preset or field is unknown.

    >>> config = Seq2SeqConfig.preset("paper", source_vocab=15000, target_vocab=15000)
    >>> config == Seq2SeqConfig.from_json(config.to_json())
    True
    """

    presets: ClassVar = {
        "tiny": _sizes(32, 32, 32),
        "tutorial": _sizes(128, 256, 128),
        # Cho et al., section 4.1: two embeddings of 100, 1000 units, 500 maxout, no dropout.
        "paper": {**_sizes(100, 1000, 500), "dropout_rate": 0.0, "joint_vocab": False},
    }

    source_vocab: int = 8000
    target_vocab: int = 8000
    embedding_dim: int = 192
    units: int = 360
    maxout_units: int = 128
    dropout_rate: float = 0.1
    joint_vocab: bool = True

    def __post_init__(self):
        super().__post_init__()
        self._check_sizes("source_vocab", "target_vocab", "embedding_dim", "units", "maxout_units")
        _checks.rate("dropout_rate", self.dropout_rate)
        self._check_joint_vocab()


@dataclasses.dataclass(frozen=True)
class RNNSearchConfig(Seq2SeqConfig):
    """Everything that an `RNNSearchModel` is built from.

    It has the fields and errors of a `Seq2SeqConfig`, with `units` the width of the decoder's state
    and of the encoder's in each direction, and:

    Args:
        alignment_units: Width of the alignment model's hidden layer.

    >>> config = RNNSearchConfig.preset("paper", source_vocab=30000, target_vocab=30000)
    >>> config == RNNSearchConfig.from_json(config.to_json())
    True
    """

    presets: ClassVar = {
        "tiny": _sizes(32, 32, 32, 32),
        "tutorial": _sizes(128, 256, 128, 128),
        # Appendix A.2.3: m = 620, n = 1000, l = 500, n' = 1000, two embeddings, no dropout.
        "paper": {**_sizes(620, 1000, 500, 1000), "dropout_rate": 0.0, "joint_vocab": False},
    }

    units: int = 272
    alignment_units: int = 192

    def __post_init__(self):
        super().__post_init__()
        self._check_sizes("alignment_units")


@dataclasses.dataclass(frozen=True)
class ConvolutionalConfig(RNNSearchConfig):
    """Everything that a `ConvolutionalModel` is built from.

    It has the fields and errors of an `RNNSearchConfig`, with `units` also the width of the
    convolutions, and:

    Args:
        alignment_layers: Number of convolutions of the alignment's stack.
        context_layers: Number of convolutions of the contexts' stack.
        kernel_size: Number of positions that one convolution sees; odd.
        max_length: Number of source positions that have a vector.

    >>> config = ConvolutionalConfig.preset("tiny", source_vocab=100, target_vocab=100)
    >>> config == ConvolutionalConfig.from_json(config.to_json())
    True
    """

    presets: ClassVar = {
        "tiny": {**_sizes(32, 32, 32, 32), "alignment_layers": 2, "context_layers": 1},
        "tutorial": _sizes(128, 192, 128, 128),
    }

    units: int = 212
    alignment_layers: int = 6
    context_layers: int = 3
    kernel_size: int = 3
    max_length: int = 512

    def __post_init__(self):
        super().__post_init__()
        self._check_sizes("alignment_layers", "context_layers", "kernel_size", "max_length")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"`kernel_size` must be odd. Received: kernel_size={self.kernel_size}")


@dataclasses.dataclass(frozen=True)
class LSTMNConfig(ModelConfig):
    """Everything that an `LSTMNLanguageModel` is built from.

    Args:
        vocab: Number of token IDs.
        embedding_dim: Width of an embedded word.
        units: Width of the hidden and of the memory tape.
        dropout_rate: Fraction of the embedded words and of the layer's output dropped in training.

    Raises:
        ValueError: If a field is out of range, or a field is unknown.

    >>> LSTMNConfig(vocab=100) == LSTMNConfig.from_json(LSTMNConfig(vocab=100).to_json())
    True
    """

    vocab: int = 8000
    embedding_dim: int = 150
    units: int = 300
    dropout_rate: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        self._check_sizes("vocab", "embedding_dim", "units")
        _checks.rate("dropout_rate", self.dropout_rate)


@dataclasses.dataclass(frozen=True)
class MemoryNetworkConfig(ModelConfig):
    """Everything that a `MemoryNetwork` is built from.

    Args:
        vocab: Number of word ids; an answer is one of them.
        width: Width of the embedded sentences.
        hops: Number of hops of attention over the facts.
        max_facts: Number of ages that have a vector in the temporal encoding.
        layerwise: Whether the embeddings are tied layer-wise instead of adjacently.
        position_encoding: Whether words are weighted by their position; False gives a bag of words.

    Raises:
        ValueError: If a field is out of range, or a field is unknown.

    >>> config = MemoryNetworkConfig(vocab=30, hops=2)
    >>> config == MemoryNetworkConfig.from_json(config.to_json())
    True
    """

    vocab: int = 100
    width: int = 50
    hops: int = 3
    max_facts: int = 50
    layerwise: bool = False
    position_encoding: bool = True

    def __post_init__(self):
        super().__post_init__()
        self._check_sizes("vocab", "width", "hops", "max_facts")
