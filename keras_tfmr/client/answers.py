"""Inputs and outputs of an exported translator's signatures, as plain Python values.

Outputs arrive as a dict from output name to nested lists, the same over gRPC and REST.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_tfmr.client.errors import ServingError

# Lower scores mark missing hypotheses of texts that have fewer than n.
_NO_SCORE = -3.4e38


Matrix = Sequence[Sequence[float]]  # [query, key]
Heads = Sequence[Sequence[Matrix]]  # [layers, heads, query, key]


class Translation(NamedTuple):
    """A translation of one text.

    Attributes:
        text: The translation.
        score: Log-probability divided by the length penalty; 0 for an empty text.
        truncated: Whether the text was too long for the model, so that only its beginning was
            translated.
    """

    text: str
    score: float
    truncated: bool


class Likelihood(NamedTuple):
    """The log-probability of a given text, or of a given translation.

    Attributes:
        log_prob: Sum of the log-probabilities of its tokens, in nats.
        tokens: Number of tokens, the end id included.
        truncated: Whether a text was too long for the model, so that only its beginning was read.
    """

    log_prob: float
    tokens: int
    truncated: bool


class Explanation(NamedTuple):
    """What each target token attended to in the source.

    Attributes:
        source_tokens: Tokens of the source.
        target_tokens: Tokens of the translation.
        attention: Cross-attention, the mean over layers and heads: nested lists [target, source].
        heads: Cross-attention by layer and head: nested lists [layers, heads, target, source];
            empty if the export gives only the mean.
        encoder_heads: Self-attention of the source: [layers, heads, source, source]; empty if the
            model has none.
        decoder_heads: Self-attention of the translation: [layers, heads, target, target]; column s
            is the token before target token s, the start id for s = 0. Empty if the model has none.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    attention: Matrix
    heads: Heads
    encoder_heads: Heads = ()
    decoder_heads: Heads = ()


def translations(outputs: dict[str, Any]) -> list[Translation]:
    """Outputs of the signature `translate`, one Translation for each text."""
    return side_by_side(outputs, Translation, "translation", "score", "truncated")


def nbest_translations(outputs: dict[str, Any]) -> list[list[Translation]]:
    """Outputs of `translate_nbest`, a list of Translation, best first, for each text."""
    return [
        [
            Translation(*pair, truncated)
            for pair in zip(texts, scores, strict=True)
            if pair[1] > _NO_SCORE
        ]
        for texts, scores, truncated in side_by_side(
            outputs, _columns, "translations", "scores", "truncated"
        )
    ]


def likelihoods(outputs: dict[str, Any]) -> list[Likelihood]:
    """Outputs of `score` and `log_prob`, one Likelihood for each text."""
    return side_by_side(outputs, Likelihood, *Likelihood._fields)


def explanations(outputs: dict[str, Any]) -> list[Explanation]:
    """Outputs of `explain`, one Explanation for each text, without the padding of the batch."""
    rows = side_by_side(outputs, _columns, "source_tokens", "target_tokens", "attention")
    # [batch, layers, heads, query, key]
    names = ("attention_heads", "encoder_heads", "decoder_heads")
    heads = [outputs.get(name, [[]] * len(rows)) for name in names]
    return [_explanation(*row, *layers) for row, *layers in zip(rows, *heads, strict=True)]


def _explanation(source_tokens, target_tokens, attention, cross, encoder, decoder):
    source, target = _unpadded(source_tokens), _unpadded(target_tokens)

    def cut(weights, queries, keys):  # [query, key] without padding
        return [row[: len(keys)] for row in weights[: len(queries)]]

    def all_cut(layers, queries, keys):
        return [[cut(head, queries, keys) for head in layer] for layer in layers]

    return Explanation(
        source,
        target,
        cut(attention, target, source),
        all_cut(cross, target, source),
        all_cut(encoder, source, source),
        all_cut(decoder, target, target),
    )


def _unpadded(tokens):
    """The tokens without the empty ones at the end."""
    length = len(tokens)
    while length and not tokens[length - 1]:
        length -= 1
    return tokens[:length]


def _columns(*values):
    return values


def side_by_side(outputs, row, *names):
    """The named outputs side by side, one `row` for each text."""
    missing = [name for name in names if name not in outputs]
    if missing:
        raise ServingError(
            f"The model answered without {', '.join(missing)} (it gave {', '.join(outputs)}): it "
            f"was exported without this signature of keras_tfmr"
        )
    return [row(*values) for values in zip(*(outputs[name] for name in names), strict=True)]
