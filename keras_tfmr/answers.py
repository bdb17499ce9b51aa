"""What text models answer: one type for each signature, in process and from a server.

The functions read a signature's outputs: a dict from the output's name to lists nested like its
tensor, strings as str. They need neither TensorFlow nor Keras.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

Answer = TypeVar("Answer")
Outputs = dict[str, Any]
Matrix = Sequence[Sequence[float]]  # [query, key]
Heads = Sequence[Sequence[Matrix]]  # [layers, heads, query, key]

# Lower scores mark missing hypotheses, which have the lowest float32: JSON has no minus infinity.
NO_SCORE = -3.4e38


class Translation(str):
    """A translation of a text: a str, with what is known of it.

    It is used, compared and hashed as its text.

    Attributes:
        text: The translation as a plain str.
        score: Log-probability divided by the length penalty; 0 for an empty text.
        truncated: Whether the text was too long for the model, so that only its beginning was
            translated.

    >>> found = Translation("the black cat", score=-0.25, truncated=False)
    >>> found.upper(), found == "the black cat", found.score
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
        truncated: Whether the model read only the beginning of one of them.
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
    """What each token of a translation attended to, without padding.

    In process, the weights are NumPy arrays; from a server, nested lists. Each row sums to 1.

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


class Tags(NamedTuple):
    """The words of a text and a tag for each.

    Attributes:
        words: The words and punctuation marks.
        tags: The most probable tag of each.
        probabilities: The probability of that tag.
        truncated: Whether the text was too long for the model, so that words are missing.
    """

    words: list[str]
    tags: list[str]
    probabilities: list[float]
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


def translations(outputs: Outputs) -> list[Translation]:
    """Reads the outputs of `translate`."""
    return _rows(outputs, Translation, "translation", "score", "truncated")


def nbest_translations(outputs: Outputs) -> list[list[Translation]]:
    """Reads the outputs of `translate_nbest`: a list, best first, for each text."""

    def row(texts, scores, truncated):
        pairs = zip(texts, scores, strict=True)
        return [Translation(text, score, truncated) for text, score in pairs if score > NO_SCORE]

    return _rows(outputs, row, "translations", "scores", "truncated")


def documents(outputs: Outputs) -> list[Document]:
    """Reads the outputs of `translate_document`."""

    def row(*values):
        *values, sources, targets = values
        pieces = [pair for pair in zip(sources, targets, strict=True) if pair[0]]
        return Document(*values, pieces)

    names = ("translation", "sentences", "truncated", "source_pieces", "target_pieces")
    return _rows(outputs, row, *names)


def likelihoods(outputs: Outputs) -> list[Likelihood]:
    """Reads the outputs of `score` and `log_prob`."""
    return _rows(outputs, Likelihood, *Likelihood._fields)


def explanations(outputs: Outputs) -> list[Explanation]:
    """Reads the outputs of `explain`."""
    present = [name for name in Explanation._fields[4:] if name in outputs]

    def row(source, target, mean, heads, *more):
        source, target = [t for t in source if t], [t for t in target if t]
        sizes = {"encoder_heads": len(source), "decoder_heads": len(target)}
        own = zip(present, more, strict=True)
        return Explanation(
            source,
            target,
            _cut(mean, len(target), len(source)),
            _cut_heads(heads, len(target), len(source)),
            **{name: _cut_heads(weights, sizes[name], sizes[name]) for name, weights in own},
        )

    return _rows(outputs, row, *Explanation._fields[:4], *present)


def classifications(outputs: Outputs) -> list[Classification]:
    """Reads the outputs of `classify`."""

    def row(label, labels, probabilities, truncated):
        return Classification(label, dict(zip(labels, probabilities, strict=True)), truncated)

    return _rows(outputs, row, "label", "labels", "probabilities", "truncated")


def tags(outputs: Outputs) -> list[Tags]:
    """Reads the outputs of `tag` and `tag_words`."""

    def row(words, *columns):
        *columns, truncated = columns
        count = sum(word != "" for word in words)
        return Tags(words[:count], *(column[:count] for column in columns), truncated)

    return _rows(outputs, row, *Tags._fields)


def completions(outputs: Outputs) -> list[Completion]:
    """Reads the outputs of `complete`."""
    return _rows(outputs, Completion, *Completion._fields)


def _rows(outputs: Outputs, row: Callable[..., Answer], *names: str) -> list[Answer]:
    """One answer for each text, from the named outputs side by side."""
    missing = [name for name in names if name not in outputs]
    if missing:
        raise KeyError(f"{', '.join(missing)} (received: {', '.join(outputs)})")
    return [row(*values) for values in zip(*(outputs[name] for name in names), strict=True)]


def _cut(weights, queries, keys):
    return [row[:keys] for row in weights[:queries]]


def _cut_heads(layers, queries, keys):
    return [[_cut(head, queries, keys) for head in layer] for layer in layers]
