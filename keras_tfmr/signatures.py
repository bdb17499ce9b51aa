"""The signatures of text models: what they are asked, in process and over the wire alike.

Each is declared once, here. A `TextModel` runs the graph function of its name, a `ServingClient`
sends its inputs to a server, and both read its outputs to the same answers; the warm-up and the
check of an export ask its example. Needs neither TensorFlow nor Keras.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from keras_tfmr._inputs import Text, example_of
from keras_tfmr.answers import (
    Classification,
    Completion,
    Document,
    Explanation,
    Likelihood,
    Tags,
    Translation,
)

Answer = TypeVar("Answer")
Outputs = Mapping[str, Any]  # {name: lists nested like its tensor, strings as str}

# Lower scores mark missing hypotheses, which have the lowest float32: JSON has no minus infinity.
NO_SCORE = -3.4e38


@dataclass(frozen=True)
class Signature(Generic[Answer]):
    """What a model can be asked, with one value of every input and output for each text.

    Attributes:
        name: Its name in an export.
        outputs: The outputs that `answer` takes, in this order.
        answer: The answer to a text, from its outputs; None if only other clients ask.
        inputs: {name: dtype} of the inputs, each `[batch]`; the first one is the texts.
        optional: Further outputs, which not every model has; `()` stands for a missing one.
        certain: Outputs that rounding to bfloat16 changes only slightly, None for all. The others
            can change completely, as the best of two labels does.
        example: Inputs that are valid for every model, made from texts.
        large: Whether the answers are so large that the check of an export asks for one text only.
        method: TensorFlow Serving's method: "predict", "classify" or "regress".

    >>> LOG_PROB.read({"log_prob": [-1.5], "tokens": [3], "truncated": [False]})
    [Likelihood(log_prob=-1.5, tokens=3, truncated=False)]
    """

    name: str
    outputs: tuple[str, ...]
    answer: Callable[..., Answer] | None = None
    inputs: Mapping[str, str] = field(default_factory=lambda: {"text": "string"})
    optional: tuple[str, ...] = ()
    certain: tuple[str, ...] | None = None
    example: Callable[[Sequence[Text]], dict[str, list[Any]]] = lambda texts: {"text": [*texts]}
    large: bool = False
    method: str = "predict"

    def read(self, outputs: Outputs) -> list[Answer]:
        """The answer to each text, from all outputs.

        Raises:
            KeyError: If an output is missing.
        """
        if missing := [name for name in self.outputs if name not in outputs]:
            raise KeyError(f"{', '.join(missing)} (received: {', '.join(outputs)})")
        assert self.answer is not None  # for the type checker
        columns = [outputs[name] for name in self.outputs]
        columns += [outputs.get(name, [()] * len(columns[0])) for name in self.optional]
        return [self.answer(*values) for values in zip(*columns, strict=True)]


def _hypotheses(texts, scores, truncated):
    pairs = zip(texts, scores, strict=True)
    return [Translation(text, score, truncated) for text, score in pairs if score > NO_SCORE]


def _document(text, sentences, truncated, sources, targets):
    pieces = [pair for pair in zip(sources, targets, strict=True) if pair[0]]
    return Document(text, sentences, truncated, pieces)


def _explanation(sources, targets, attention, attention_heads, encoder_heads, decoder_heads):
    sources, targets = [t for t in sources if t], [t for t in targets if t]
    source, target = len(sources), len(targets)

    def cut(heads, queries, keys):
        return [[[row[:keys] for row in head[:queries]] for head in layer] for layer in heads]

    [[attention]] = cut([[attention]], target, source)
    return Explanation(
        sources,
        targets,
        attention,
        cut(attention_heads, target, source),
        cut(encoder_heads, source, source),
        cut(decoder_heads, target, target),
    )


def _classification(label, labels, probabilities, truncated):
    return Classification(label, dict(zip(labels, probabilities, strict=True)), truncated)


def _tags(words, tags, probabilities, truncated):
    count = sum(word != "" for word in words)
    return Tags(words[:count], tags[:count], probabilities[:count], truncated)


def _pairs(texts):
    return {"text": [*texts], "reference": [*texts][::-1]}


def _prompts(texts):
    return {"prompt": [*texts]}


def _sampled(texts):
    """Several ways to draw, over enough tokens to go through several steps."""
    count = len(texts)

    def in_turn(*values):
        return [*itertools.islice(itertools.cycle(values), count)]

    return {
        "prompt": [*texts],
        "length": [16] * count,
        "temperature": in_turn(1.0, 0.0, 0.7),
        "top_k": in_turn(0, 0, 40),
        "top_p": in_turn(0.9, 1.0, 1.0),
        "seed": [*range(count)],
    }


def _examples(texts):
    return {"inputs": [example_of(text) for text in texts]}


TRANSLATE = Signature(
    "translate", ("translation", "score", "truncated"), Translation, certain=("score", "truncated")
)
TRANSLATE_NBEST = Signature(
    "translate_nbest", ("translations", "scores", "truncated"), _hypotheses, certain=("truncated",)
)
TRANSLATE_DOCUMENT = Signature(
    "translate_document",
    ("translation", "sentences", "truncated", "source_pieces", "target_pieces"),
    _document,
    certain=("sentences", "truncated", "source_pieces"),
)
SCORE = Signature(
    "score",
    Likelihood._fields,
    Likelihood,
    inputs={"text": "string", "reference": "string"},
    example=_pairs,
)
EXPLAIN = Signature(
    "explain",
    Explanation._fields[:4],
    _explanation,
    optional=Explanation._fields[4:],
    certain=("source_tokens",),
    large=True,  # a number for each pair of tokens, layer and head
)
CLASSIFY = Signature(
    "classify",
    ("label", "labels", "probabilities", "truncated"),
    _classification,
    certain=("probabilities",),
)
TAG = Signature("tag", Tags._fields, _tags, certain=("words", "truncated"))
TAG_WORDS = Signature("tag_words", Tags._fields, _tags, certain=("words", "truncated"))
COMPLETE = Signature(
    "complete",
    Completion._fields,
    Completion,
    inputs={
        "prompt": "string",
        "length": "int32",
        "temperature": "float32",
        "top_k": "int32",
        "top_p": "float32",
        "seed": "int64",
    },
    certain=("truncated",),
    example=_sampled,
)
COMPLETE_GREEDILY = Signature(
    "complete_greedily",
    Completion._fields,
    Completion,
    inputs={"prompt": "string"},
    certain=("truncated",),
    example=_prompts,
)
LOG_PROB = Signature("log_prob", Likelihood._fields, Likelihood)
# TensorFlow Serving's own methods, whose requests hold `tf.train.Example` messages.
CLASSIFY_EXAMPLES = Signature(
    "classify_examples",
    ("classes", "scores"),
    inputs={"inputs": "string"},
    example=_examples,
    method="classify",
)
REGRESS_EXAMPLES = Signature(
    "regress_examples",
    ("outputs",),
    inputs={"inputs": "string"},
    example=_examples,
    method="regress",
)
