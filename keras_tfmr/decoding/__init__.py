"""Greedy decoding, beam search and sampling over a `DecodingStep`.

What enters: a step and its first state, a `DecodingConfig`, the `Examples` of a batch, and for
sampling a `Sampling`; each checks itself. What leaves: a `DecodingResult`. A search
knows nothing of layers. It runs eagerly, inside `tf.function`, in a SavedModel, under XLA and under
`jax.jit`.

A token is made in this order: a model's `step` makes its log-probabilities, `constraints` forbids
tokens, `topk` or `sampling` selects among the rest, `searches` extends the hypotheses and `loop`
repeats.
"""

from keras_tfmr.decoding.decoding_config import DecodingConfig
from keras_tfmr.decoding.examples import Examples, banned_ids, slots_due
from keras_tfmr.decoding.result import DecodingResult, length_penalty, score
from keras_tfmr.decoding.sampling import Sampling
from keras_tfmr.decoding.searches import search
from keras_tfmr.decoding.step import DecodingStep, FunctionStep

__all__ = [
    "DecodingConfig",
    "DecodingResult",
    "DecodingStep",
    "Examples",
    "FunctionStep",
    "Sampling",
    "banned_ids",
    "length_penalty",
    "score",
    "search",
    "slots_due",
]
