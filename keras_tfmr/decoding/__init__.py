"""Greedy, beam search and sampling over a `DecodingStep`.

The loops know nothing of layers: they decode with any step that gives the log-probabilities of the
next token. They run eagerly, inside `tf.function`, in a SavedModel, under XLA and under `jax.jit`.
"""

from keras_tfmr.decoding.beam import beam_search
from keras_tfmr.decoding.config import DecodingConfig
from keras_tfmr.decoding.greedy import greedy
from keras_tfmr.decoding.result import DecodingResult, length_penalty
from keras_tfmr.decoding.sampling import sample
from keras_tfmr.decoding.sampling_each import sample_each
from keras_tfmr.decoding.scoring import score
from keras_tfmr.decoding.step import DecodingStep, FunctionStep

__all__ = [
    "DecodingConfig",
    "DecodingResult",
    "DecodingStep",
    "FunctionStep",
    "beam_search",
    "greedy",
    "length_penalty",
    "sample",
    "sample_each",
    "score",
]
