"""The one place of model defaults."""

import dataclasses
import json

PRESETS = {
    "tiny": {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "d_model": 32,
        "num_heads": 2,
        "dff": 64,
    },
    "tutorial": {
        "encoder_layers": 4,
        "decoder_layers": 4,
        "d_model": 128,
        "num_heads": 8,
        "dff": 512,
    },
    "base": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "d_model": 512,
        "num_heads": 8,
        "dff": 2048,
    },
    "big": {
        "encoder_layers": 6,
        "decoder_layers": 6,
        "d_model": 1024,
        "num_heads": 16,
        "dff": 4096,
    },
}


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Everything that a model is built from; `tutorial` sizes by default.

    Args:
        source_vocab: Number of source token ids.
        target_vocab: Number of target token ids, which a language model or a classifier reads.
        encoder_layers: Number of encoder layers.
        decoder_layers: Number of decoder layers; the depths may differ.
        d_model: Width of the vectors between layers.
        num_heads: Number of heads of every attention.
        dff: Width of the feed-forward hidden layers.
        dropout_rate: Share dropped in training.
        key_dim: Width of a key in one head; `d_model // num_heads` if None.
        value_dim: Width of a value in one head; `key_dim` if None.
        norm_first: Pre-norm instead of the paper's post-norm.
        joint_vocab: One embedding for both sides, which then have one vocabulary.
        tied_logits: The target embedding's table also makes the logits.
        learned_positions: Learned position vectors, up to `max_length`, instead of sinusoids.
        max_length: Number of learned positions.

    Raises:
        ValueError: If fields contradict each other, or a preset or field is unknown.

    >>> config = TransformerConfig.preset("base", source_vocab=8000, target_vocab=8000)
    >>> config == TransformerConfig.from_json(config.to_json())
    True
    """

    source_vocab: int = 8000
    target_vocab: int = 8000
    encoder_layers: int = 4
    decoder_layers: int = 4
    d_model: int = 128
    num_heads: int = 8
    dff: int = 512
    dropout_rate: float = 0.1
    key_dim: int | None = None
    value_dim: int | None = None
    norm_first: bool = False
    joint_vocab: bool = True
    tied_logits: bool = True
    learned_positions: bool = False
    max_length: int = 512

    def __post_init__(self):
        sizes = (
            "source_vocab", "target_vocab", "encoder_layers", "decoder_layers", "d_model",
            "num_heads", "dff", "max_length",
        )  # fmt: skip
        optional = [name for name in ("key_dim", "value_dim") if getattr(self, name) is not None]
        for name in (*sizes, *optional):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise ValueError(f"`{name}` must be a positive integer. Received: {value!r}")
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"`dropout_rate` must be in [0, 1). Received: {self.dropout_rate!r}")
        if self.key_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                "`d_model` must be divisible by `num_heads` unless `key_dim` is given. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}"
            )
        if self.joint_vocab and self.source_vocab != self.target_vocab:
            raise ValueError(
                "A joint vocabulary has one size. Received: "
                f"source_vocab={self.source_vocab}, target_vocab={self.target_vocab}"
            )

    @classmethod
    def preset(cls, name, **fields):
        """The config of a named size (tiny, tutorial, base, big), with `fields` replaced."""
        if name not in PRESETS:
            raise ValueError(f"Unknown preset {name!r}. Expected one of: {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **fields})

    def replace(self, **fields):
        """A copy with `fields` replaced."""
        return dataclasses.replace(self, **fields)

    def to_dict(self):
        """The fields as a dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields):
        """The config of a dictionary of fields; unknown ones are an error."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(
                f"Unknown fields of a TransformerConfig: {unknown}. Expected some of: "
                f"{sorted(known)}"
            )
        return cls(**fields)

    def to_json(self):
        """The fields as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text):
        """The config that `to_json` wrote."""
        return cls.from_dict(json.loads(text))
