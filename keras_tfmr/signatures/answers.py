"""Answers of text models: the same types in process and from a server."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

Matrix = Sequence[Sequence[float]]  # [query, key]
Heads = Sequence[Sequence[Matrix]]  # [layers, heads, query, key]


class Translation(str):
    """A translation of a text: a str, with what is known of it.

    It is used, compared and hashed as its text.

    Attributes:
        text: The translation as a plain str.
        score: Log-probability divided by the length penalty; 0 for an empty text.
        truncated: Whether the text was too long for the model, so that only its beginning was
            translated, or had too many spans, so that only the first ones were protected.

    >>> translation = Translation("the black cat", score=-0.25, truncated=False)
    >>> translation.upper(), translation == "the black cat", translation.score
    ('THE BLACK CAT', True, -0.25)
    """

    score: float
    truncated: bool

    def __new__(cls, text: str, score: float, truncated: bool) -> Self:
        self = super().__new__(cls, text)
        self.score, self.truncated = score, truncated
        return self

    @property
    def text(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return (
            f"Translation(text={self.text!r}, score={self.score!r}, truncated={self.truncated!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:  # for other processes
        return type(self), (self.text, self.score, self.truncated)


class Document(NamedTuple):
    """A translation of a text of any length.

    Attributes:
        text: The translation, with the source's white space.
        sentences: How many sentences were translated.
        truncated: Whether the model read only the beginning of one of them, or protected only its
            first spans.
        pieces: List of (source, translation): the sentences, and what stands between them, which
            is the same in both. Joined, the sources are the text, the translations `text`.
    """

    text: str
    sentences: int
    truncated: bool
    pieces: list[tuple[str, str]]


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
    """The attention of each token of a translation, without padding.

    The weights are nested lists. Each row sums to 1.

    Attributes:
        source_tokens: Tokens of the source, its end included.
        target_tokens: Tokens of the translation, its end included.
        attention: Cross-attention `[target, source]`, the mean over layers and heads.
        attention_heads: Cross-attention `[layers, heads, target, source]`.
        encoder_heads: Self-attention `[layers, heads, source, source]`; empty if the model has
            none.
        decoder_heads: Self-attention `[layers, heads, target, target]`; column s is the token
            before target token s, the start id for s = 0. Empty if the model has none.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    attention: Matrix
    attention_heads: Heads
    encoder_heads: Heads = ()
    decoder_heads: Heads = ()


class Classification(NamedTuple):
    """The labels of a text.

    Attributes:
        label: The most probable one.
        probabilities: Dict from every label to its probability, the most probable first.
        truncated: Whether the text was too long for the model, so that only its beginning was read.
    """

    label: str
    probabilities: dict[str, float]
    truncated: bool


class Completion(NamedTuple):
    """A continuation of a text.

    Attributes:
        text: The text after the prompt, with its leading space if there is one.
        log_prob: Its log-probability after the prompt in nats, summed over its tokens.
        tokens: Number of tokens, the end id included.
        finished: Whether the model ended the text; otherwise it reached its maximum length.
        truncated: Whether the prompt was too long for the model, so that only its end was read.
    """

    text: str
    log_prob: float
    tokens: int
    finished: bool
    truncated: bool
