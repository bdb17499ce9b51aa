"""Greedy decoding, beam search and sampling over a `DecodingStep`.

A token is made in this order: `step` says what a search knows of a model, `transformer_step` and
`shortlist` make its log-probabilities, `constraints` forbids tokens, `topk` selects among the rest,
`search` extends the hypotheses and repeats. `config` and `sample` are the ways in.

A search knows nothing of layers. It runs eagerly, inside `tf.function`, in a SavedModel, under XLA
and under `jax.jit`.
"""

from keras_tfmr.decoding.config import DecodingConfig, SearchOptions, beam_search, greedy
from keras_tfmr.decoding.result import DecodingResult, length_penalty, score
from keras_tfmr.decoding.sample import generate, sample
from keras_tfmr.decoding.step import DecodingStep, FunctionStep

__all__ = [
    "DecodingConfig",
    "DecodingResult",
    "DecodingStep",
    "FunctionStep",
    "SearchOptions",
    "beam_search",
    "generate",
    "greedy",
    "length_penalty",
    "sample",
    "score",
]


def __dir__():
    return __all__
