"""The config of the Transformer models: the only place of their defaults."""

import dataclasses
from typing import Any, ClassVar, Self

from keras_tfmr import _checks
from keras_tfmr.config import Config

POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "alibi", "none")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")


def _sizes(layers: int, d_model: int, num_heads: int, dff: int) -> dict[str, Any]:
    return {
        "encoder_layers": layers,
        "decoder_layers": layers,
        "d_model": d_model,
        "num_heads": num_heads,
        "dff": dff,
    }


class ModelConfig(Config):
    """The base of the configs of models, which may have `presets` by name."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    @classmethod
    def preset(cls, name: str, **fields: Any) -> Self:
        """The config of a named preset, with `fields` replaced."""
        if name not in cls.presets:
            known = ", ".join(cls.presets)
            raise ValueError(f"Unknown preset {name!r}. Expected one of: {known}")
        return cls(**{**cls.presets[name], **fields})

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is bool or (field.type == bool | None and value is not None):
                _checks.flag(field.name, value)

    def _check_sizes(self, *names):
        for name in names:
            _checks.integer(name, getattr(self, name))

    def _check_joint_vocab(self):
        if self.joint_vocab and self.source_vocab != self.target_vocab:
            raise ValueError(
                "With a joint vocabulary, source_vocab and target_vocab must be equal. Received: "
                f"source_vocab={self.source_vocab}, target_vocab={self.target_vocab}"
            )


@dataclasses.dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Everything that a model is built from. The default sizes are those of the preset `tutorial`.

    Args:
        source_vocab: Number of source token IDs; the vocabulary of a classifier.
        target_vocab: Number of target token IDs; the vocabulary of a language model.
        encoder_layers: Number of encoder layers.
        decoder_layers: Number of decoder layers; the depths may differ.
        d_model: Width of the vectors between layers.
        num_heads: Number of attention heads per layer.
        dff: Width of the feed-forward hidden layers.
        dropout_rate: Fraction of the values dropped in training.
        attention_dropout_rate: Fraction of the attention weights dropped; `dropout_rate` if None.
            With 0, training uses a fused kernel where the backend has one.
        key_dim: Width of a head; `d_model // num_heads` if None.
        num_kv_heads: Number of heads of keys and values; `num_heads` if None.
        norm_first: Pre-norm instead of the paper's post-norm.
        norm: "layer" or "rms" normalisation.
        norm_epsilon: Added to the variance or the mean of squares.
        qk_norm: Whether queries and keys are normalised in each head.
        activation: The activation of feed-forward sublayers: "relu", "gelu", "gelu_tanh" or "silu".
        gated: Whether the feed-forward sublayers are gated.
        use_bias: Whether the projections inside the layers add a bias.
        joint_vocab: Whether source and target share one embedding, and so one vocabulary.
        tied_logits: Whether the table of the target embedding also makes the logits.
        logits_bias: Whether the logits have a bias; by default, they do unless they are tied.
        embedding_scale: Whether token embeddings are multiplied by √d_model.
        embedding_norm: Whether a normalisation follows the embedding.
        positions: "sinusoidal", "learned" (up to `max_length`), "rotary", "relative" (T5's
            buckets), "alibi" or "none".
        max_wavelength: The base of the sinusoidal and of the rotary angles.
        max_length: Number of learned positions.

    Raises:
        ValueError: If a field is out of range, fields contradict each other, or a preset or field
            is unknown.

    >>> config = TransformerConfig.preset("base", source_vocab=8000, target_vocab=8000)
    >>> config == TransformerConfig.from_json(config.to_json())
    True
    """

    presets: ClassVar = {
        "tiny": _sizes(2, 32, 2, 64),
        "small": {**_sizes(3, 192, 4, 768), "norm_first": True},
        "tutorial": _sizes(4, 128, 8, 512),
        "base": _sizes(6, 512, 8, 2048),
        "big": {**_sizes(6, 1024, 16, 4096), "dropout_rate": 0.3},
    }

    source_vocab: int = 8000
    target_vocab: int = 8000
    encoder_layers: int = 4
    decoder_layers: int = 4
    d_model: int = 128
    num_heads: int = 8
    dff: int = 512
    dropout_rate: float = 0.1
    attention_dropout_rate: float | None = None
    key_dim: int | None = None
    num_kv_heads: int | None = None
    norm_first: bool = False
    norm: str = "layer"
    norm_epsilon: float = 1e-6
    qk_norm: bool = False
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = True
    joint_vocab: bool = True
    tied_logits: bool = True
    logits_bias: bool | None = None
    embedding_scale: bool = True
    embedding_norm: bool = False
    positions: str = "sinusoidal"
    max_wavelength: float = 10_000.0
    max_length: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (
            "source_vocab", "target_vocab", "encoder_layers", "decoder_layers", "d_model",
            "num_heads", "dff", "max_length",
        )  # fmt: skip
        self._check_sizes(*sizes)
        if self.key_dim is None:
            _checks.divisor("num_heads", self.num_heads, "d_model", self.d_model)
        else:
            _checks.integer("key_dim", self.key_dim)
        _checks.rate("dropout_rate", self.dropout_rate)
        _checks.rate("attention_dropout_rate", self.attention_dropout_rate or 0.0)
        if self.num_kv_heads is not None:
            _checks.divisor("num_kv_heads", self.num_kv_heads, "num_heads", self.num_heads)
        _checks.one_of("norm", self.norm, ("layer", "rms"))
        _checks.number("norm_epsilon", self.norm_epsilon, positive=True)
        _checks.one_of("activation", self.activation, ACTIVATIONS)
        _checks.one_of("positions", self.positions, POSITIONS)
        _checks.number("max_wavelength", self.max_wavelength, positive=True)
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"Rotary positions need heads of even width. Received: width {self.head_width}"
            )
        self._check_joint_vocab()

    @property
    def head_width(self) -> int:
        """The width of a query and of a key in one head."""
        if self.key_dim is not None:
            return self.key_dim
        return self.d_model // self.num_heads
