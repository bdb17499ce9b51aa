"""Greedy decoding, beam search and sampling over a `DecodingStep`.

The loops know nothing of layers: they decode with any step that gives the log-probabilities of the
next token. They run eagerly, inside `tf.function`, in a SavedModel, under XLA and under `jax.jit`.
"""

from keras_tfmr.decoding.beam import beam_search, greedy
from keras_tfmr.decoding.config import DecodingConfig
from keras_tfmr.decoding.result import DecodingResult, length_penalty, score
from keras_tfmr.decoding.sample import generate, sample
from keras_tfmr.decoding.search import DecodingStep, FunctionStep

__all__ = [
    "DecodingConfig",
    "DecodingResult",
    "DecodingStep",
    "FunctionStep",
    "beam_search",
    "generate",
    "greedy",
    "length_penalty",
    "sample",
    "score",
]
