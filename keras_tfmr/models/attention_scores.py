"""The attention weights that a translation model's `explain` returns with the logits."""

from typing import NamedTuple


class AttentionScores(NamedTuple):
    """Attention weights by layer and head: lists over layers, empty if the model has no such part.

    Attributes:
        cross: Cross-attention of the decoder, `[batch, heads, target, source]`.
        encoder: Self-attention of the source, `[batch, heads, source, source]`.
        decoder: Self-attention of the target, `[batch, heads, target, target]`.
    """

    cross: list
    encoder: list = ()
    decoder: list = ()
