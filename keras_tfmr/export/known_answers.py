"""Requests to an export: with the answers of its text model, for its check; and for its warm-up."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfmr import compat
from keras_tfmr.export.check import Case
from keras_tfmr.export.warmup import BATCHES
from keras_tfmr.precision import precision_of
from keras_tfmr.signatures.inputs import utf8
from keras_tfmr.text.strings import Text

# Short and long texts, with and without accents, which any model of text should answer.
TEXTS = (
    "Bom dia!",
    "Onde fica a estação de comboios mais próxima, por favor?",
    "Ontem choveu tanto que ficámos em casa a ler o livro que a minha irmã nos emprestou.",
    "Não sei.",
)

# Two sentences, spans, an emoji, and bytes that are not UTF-8: the branches that graphs have.
TEXT = (
    "Não sei. Abra `a  b` em https://example.org/c, {nome}! Olá 👋🏽, ".encode() + b"caf\xe9 \x00."
)


def cases(text_model: Any, texts: Sequence[bytes] = (TEXT,)) -> list[Case]:
    """Requests for every signature of a `TextModel`, with the answers that it gives in process."""
    return [case(text_model, name, texts) for name in text_model.signatures]


def case(text_model: Any, name: str, texts: Sequence[bytes] = (TEXT,)) -> Case:
    """A request for one signature, with the answer that a `TextModel` gives in process.

    Among translations of nonsense, rounding decides. What a search finds with a rounded model is
    therefore left out.
    """
    inputs = request_of(text_model, name, texts)
    # Optimising a signature takes seconds, more than a few answers gain from it.
    with compat.unoptimized_functions():
        outputs = text_model.signatures[name](*map(tf.constant, inputs.values()))
    if precision_of(text_model.model) != "float32" and text_model.declared[name].searched:
        outputs = {}
    return name, inputs, {alias: value.numpy() for alias, value in outputs.items()}


def warm_ups(
    text_model: Any, names: Iterable[str] | None, texts: Sequence[Text]
) -> list[tuple[str, dict[str, np.ndarray]]]:
    """Requests for `warmup.write`: some signatures, in every size of batch.

    Args:
        text_model: The `TextModel`.
        names: The signatures' names; None for those that servers are asked most.
        texts: The texts of the requests.

    Raises:
        ValueError: If the model has no signature of a name.
    """
    served = [name for name in text_model.signatures if text_model.declared[name].warmed_up]
    names = served if names is None else list(names)
    if unknown := [name for name in names if name not in text_model.signatures]:
        raise ValueError(
            f"Expected signatures to warm up of {', '.join(text_model.signatures)}. Received: "
            f"{', '.join(map(repr, unknown))}"
        )
    rows = [[texts[i % len(texts)] for i in range(batch)] for batch in BATCHES]
    return [(name, request_of(text_model, name, batch)) for name in names for batch in rows]


def request_of(text_model: Any, name: str, texts: Sequence[Any]) -> dict[str, np.ndarray]:
    """A request to a signature with these texts: {input: array}, in the signature's order."""

    def in_turn(*values):
        return [*itertools.islice(itertools.cycle(values), len(texts))]

    values = {
        "reference": [*texts[::-1]],
        # The first word of each text, which becomes another one.
        "terms": [b"\t".join(utf8(one) for one in (*text.split()[:1], text[:9])) for text in texts],
        "length": in_turn(16),  # long enough to go through several steps
        "temperature": in_turn(1.0, 0.0, 0.7),
        "top_k": in_turn(0, 0, 40),
        "top_p": in_turn(0.9, 1.0, 1.0),
        "seed": [*range(len(texts))],
    }
    return {
        alias: np.array(values.get(alias, [*texts]), object if dtype == "string" else dtype)
        for alias, dtype in text_model.declared[name].inputs.items()
    }
