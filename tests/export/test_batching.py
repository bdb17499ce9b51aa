"""Requests that share a batch, as TensorFlow Serving forms it, are answered as each alone."""

import batching
import numpy as np
import pytest
import tensorflow as tf
from text_models import (
    ADVERSARIAL,
    LINES,
    allow_int8,
    classifier,
    completer,
    tiny,
    tiny_translator,
    tokenizer,
)

from keras_tfmr import Transformer
from keras_tfmr.export import known_answers
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.text.spans import SLOTS

# Several fill a batch, one is larger than the space that another one left.
SIZES = (1, 3, 24, 2, 40, 64, 5)
TERMS = (b"", b"gato\tcat", b"o\tthe\nmesa\ttable\nbom dia\thello", b"no term", b"a\tb\r\n" * 4000)


def translator():
    size = tokenizer(SLOTS).vocab_size
    model = tiny(Transformer, seed=3, source_vocab=size, target_vocab=size)
    return tiny_translator(model, symbols=SLOTS)


MODELS = [
    (classifier, "float32", 1e-4),
    (classifier, "bfloat16", 5e-2),
    (completer, "float32", 1e-4),
    (completer, "bfloat16", 5e-2),
    (completer, "int8", 5e-2),
    (translator, "float32", 1e-4),
    (translator, "bfloat16", 5e-2),
    (translator, "int8", 5e-2),
]
MODELS[1:] = [pytest.param(*one, marks=pytest.mark.ci) for one in MODELS[1:]]


def requests_of(model, signature):
    """Requests of all sizes, and one of difficult texts."""
    lines = [LINES[n % len(LINES)].encode() for n in range(sum(SIZES))]
    texts = [lines[end - size : end] for size, end in zip(SIZES, np.cumsum(SIZES), strict=True)]
    texts.insert(2, ADVERSARIAL)
    requests = [known_answers.request_of(model, signature, each) for each in texts]
    for inputs in requests:
        if "terms" in inputs:
            inputs["terms"] = np.resize(np.array(TERMS, object), len(inputs["terms"]))
    return requests


def differing(found, alone, tolerance):
    """bool [rows]: which answers differ, apart from padding to the longest of the batch."""
    differ = np.zeros(len(next(iter(alone.values()))), bool)
    for name in alone:
        pair = [found[name], alone[name]]
        shape = np.max([x.shape for x in pair], axis=0)
        x, y = (padded(each, shape) for each in pair)
        exact = x.dtype.kind in "Ob"
        same = x == y if exact else np.isclose(x, y, rtol=tolerance, atol=tolerance)
        differ |= ~same.reshape(len(x), -1).all(axis=1)
    return differ


def padded(array, shape):
    """The array with "", 0 or False behind each axis."""
    larger = np.full(shape, b"" if array.dtype == object else 0, array.dtype)
    larger[tuple(slice(size) for size in array.shape)] = array
    return larger


@pytest.mark.parametrize(("make", "precision", "tolerance"), MODELS)
def test_requests_of_any_signature_share_batches(make, precision, tolerance, tmp_path, monkeypatch):
    """In reduced precision, rounding may let the search of a few rows end with another text."""
    allow_int8(monkeypatch)
    model = make()
    path = model.export(tmp_path, precision=precision, texts=LINES, check=False)
    parameters = batching.parameters_of((path / "batching_params.pbtxt").read_text())
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # which takes seconds
    with SavedSession(path, config) as session:
        for name in model.signatures:
            requests = requests_of(model, name)
            together = batching.answers(session, name, requests, parameters)
            alone = [session.run(name, inputs) for inputs in requests]
            pairs = zip(together, alone, strict=True)
            differ = np.concatenate([differing(*pair, tolerance) for pair in pairs])
            rounded = precision != "float32" and model.declared[name].searched
            assert differ.mean() <= (0.1 if rounded else 0), (name, differ.mean())
