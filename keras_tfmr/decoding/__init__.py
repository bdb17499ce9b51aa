"""Greedy decoding, beam search and sampling over a `DecodingStep`.

`search` takes a step with its first state, a `DecodingConfig`, the `Examples` of a batch and, to
sample, a `Sampling`. It returns a `DecodingResult`. It knows no layers, and runs eagerly, inside
`tf.function`, in a SavedModel, and, with a step of fixed shapes, under XLA and `jax.jit`.

`loop` repeats four things: a model's `step` gives the log-probabilities of the next token,
`constraints` forbids some tokens, `topk` or `sampling` selects among the others, and `greedy` or
`beams` adds what was selected to the hypotheses.
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
