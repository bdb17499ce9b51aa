"""Outputs of the signatures of classifiers, taggers and language models, as plain Python values.

Outputs arrive as a dict from output name to nested lists, the same over gRPC and REST.
"""

from typing import Any, NamedTuple

from keras_tfmr.client.answers import side_by_side


class Classification(NamedTuple):
    """The labels of one text.

    Attributes:
        label: The most probable one.
        probabilities: Dict from every label to its probability, the most probable first.
        truncated: Whether the text was too long for the model, so that only its beginning was read.
    """

    label: str
    probabilities: dict[str, float]
    truncated: bool


class Tags(NamedTuple):
    """The words of one text and a tag for each.

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
    """A continuation of one text.

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


def classifications(outputs: dict[str, Any]) -> list[Classification]:
    """Outputs of the signature `classify`, one Classification for each text."""
    return side_by_side(outputs, _classification, "label", "labels", "probabilities", "truncated")


def tags(outputs: dict[str, Any]) -> list[Tags]:
    """Outputs of `tag` and `tag_words`, one Tags for each text, without the batch's padding."""
    return side_by_side(outputs, _tags, "words", "tags", "probabilities", "truncated")


def completions(outputs: dict[str, Any]) -> list[Completion]:
    """Outputs of `complete`, one Completion for each prompt."""
    return side_by_side(outputs, Completion, *Completion._fields)


def _classification(label, labels, probabilities, truncated):
    return Classification(label, dict(zip(labels, probabilities, strict=True)), truncated)


def _tags(words, tags, probabilities, truncated):
    count = sum(word != "" for word in words)
    return Tags(words[:count], tags[:count], probabilities[:count], truncated)
