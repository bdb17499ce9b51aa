"""What a translator's `explain` returns beside the logits."""

from typing import NamedTuple


class AttentionScores(NamedTuple):
    """Who attended to whom, by layer and head: sequences over layers, empty where there is none.

    Attributes:
        cross: Of the decoder over the source, `[batch, heads, target, source]`.
        encoder: Self-attention of the source, `[batch, heads, source, source]`.
        decoder: Self-attention of the target, `[batch, heads, target, target]`.
    """

    cross: list
    encoder: list = ()
    decoder: list = ()
