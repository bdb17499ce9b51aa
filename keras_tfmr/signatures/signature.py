"""The signatures of text models, in process and over the wire alike.

Each is declared once, here. A `TextModel` runs the graph function of its name, a `ServingClient`
sends its inputs to a server, and both read its outputs to the same answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from keras_tfmr.signatures import answers

Answer = TypeVar("Answer")
Outputs = Mapping[str, Any]  # {name: lists nested like its tensor, strings as str}

# Lower scores mark missing hypotheses, which have the lowest float32: JSON has no minus infinity.
NO_SCORE = -3.4e38


@dataclass(frozen=True)
class Signature(Generic[Answer]):
    """A request to a model and its answer, with one value of every input and output for each text.

    Attributes:
        name: Its name in an export.
        outputs: The outputs that `answer` takes, in this order.
        answer: The answer to a text, from its outputs.
        inputs: {name: dtype} of the inputs, the first of which is the texts. Each is `[batch]`:
            TensorFlow Serving batches requests only if they differ in this dimension alone.
        optional: Further outputs, which not every model has; `()` stands for a missing one.
        warmed_up: Whether exports warm servers up for it by default.
        searched: Whether the answer is the best of several, which rounding can change completely.

    >>> LOG_PROB.read({"log_prob": [-1.5], "tokens": [3], "truncated": [False]})
    [Likelihood(log_prob=-1.5, tokens=3, truncated=False)]
    """

    name: str
    outputs: tuple[str, ...]
    answer: Callable[..., Answer]
    inputs: Mapping[str, str] = field(default_factory=lambda: {"text": "string"})
    optional: tuple[str, ...] = ()
    warmed_up: bool = False
    searched: bool = False

    def read(self, outputs: Outputs) -> list[Answer]:
        """The answer to each text, from all outputs.

        Raises:
            ValueError: If an output is missing, or they have different numbers of rows.
        """
        if missing := [name for name in self.outputs if name not in outputs]:
            raise ValueError(f"it lacks {', '.join(missing)}. Received: {', '.join(outputs)}")
        columns = [outputs[name] for name in self.outputs]
        columns += [outputs.get(name, [()] * len(columns[0])) for name in self.optional]
        return [self.answer(*values) for values in zip(*columns, strict=True)]


def _hypotheses(texts, scores, truncated):
    pairs = [pair for pair in zip(texts, scores, strict=True) if pair[1] > NO_SCORE]
    return [answers.Translation(text, score, truncated) for text, score in pairs]


def _document(text, sentences, truncated, sources, targets):
    pieces = [pair for pair in zip(sources, targets, strict=True) if pair[0]]
    return answers.Document(text, sentences, truncated, pieces)


def _explanation(sources, targets, attention, attention_heads, encoder_heads, decoder_heads):
    sources, targets = [t for t in sources if t], [t for t in targets if t]
    source, target = len(sources), len(targets)

    def cut(heads, queries, keys):
        return [[[row[:keys] for row in head[:queries]] for head in layer] for layer in heads]

    return answers.Explanation(
        sources,
        targets,
        [row[:source] for row in attention[:target]],
        cut(attention_heads, target, source),
        cut(encoder_heads, source, source),
        cut(decoder_heads, target, target),
    )


def _classification(label, labels, probabilities, truncated):
    return answers.Classification(label, dict(zip(labels, probabilities, strict=True)), truncated)


TRANSLATE = Signature(
    "translate",
    ("translation", "score", "truncated"),
    answers.Translation,
    warmed_up=True,
    searched=True,
)
TRANSLATE_NBEST = Signature(
    "translate_nbest",
    ("translations", "scores", "truncated"),
    _hypotheses,
    warmed_up=True,
    searched=True,
)
TRANSLATE_DOCUMENT = Signature(
    "translate_document",
    ("translation", "sentences", "truncated", "source_pieces", "target_pieces"),
    _document,
    searched=True,
)
TRANSLATE_WITH_TERMS = Signature(
    "translate_with_terms",
    ("translation", "score", "truncated"),
    answers.Translation,
    inputs={"text": "string", "terms": "string"},
    searched=True,
)
LIKELIHOOD = ("log_prob", "tokens", "truncated")
SCORE = Signature(
    "score", LIKELIHOOD, answers.Likelihood, inputs={"text": "string", "reference": "string"}
)
EXPLAIN = Signature(
    "explain",
    ("source_tokens", "target_tokens", "attention", "attention_heads"),
    _explanation,
    optional=("encoder_heads", "decoder_heads"),
    searched=True,
)
CLASSIFY = Signature(
    "classify",
    ("label", "labels", "probabilities", "truncated"),
    _classification,
    warmed_up=True,
    searched=True,
)
COMPLETION = ("text", "log_prob", "tokens", "finished", "truncated")
COMPLETE = Signature(
    "complete",
    COMPLETION,
    answers.Completion,
    inputs={
        "prompt": "string", "length": "int32", "temperature": "float32", "top_k": "int32",
        "top_p": "float32", "seed": "int64",
    },
    warmed_up=True,
    searched=True,
)  # fmt: skip
COMPLETE_GREEDILY = Signature(
    "complete_greedily",
    COMPLETION,
    answers.Completion,
    inputs={"prompt": "string"},
    warmed_up=True,
    searched=True,
)
LOG_PROB = Signature("log_prob", LIKELIHOOD, answers.Likelihood)
