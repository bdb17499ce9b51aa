"""The attention of each position, from the scores of a graph's attention layers."""

import functools
from typing import NamedTuple

import keras

from keras_tfmr.models.graph import as_plain_model, overridden
from keras_tfmr.models.step_derivation import OfLayer


class AttentionScores(NamedTuple):
    """Attention weights by layer and head: lists over layers, empty if the model has no such part.

    Attributes:
        cross: Attention of the target to a context, `[batch, heads, target, source]`.
        encoder: Self-attention of a source, `[batch, heads, source, source]`.
        decoder: Causal self-attention, `[batch, heads, target, target]`.
    """

    cross: list
    encoder: list = ()
    decoder: list = ()


def with_scores(model: keras.Model) -> keras.Model:
    """A model of the same graph, from the same inputs to the outputs and lists of scores.

    Its outputs are a list: the outputs of the model, then the scores of `AttentionScores`, those of
    cross-attention first. Layers inside other models are not asked.
    """
    found = {name: [] for name in AttentionScores._fields}

    def call(layer, *args, **kwargs):
        names = getattr(layer, "attention_scores", None)
        if names is None or overridden(layer, "attention_scores"):
            return layer(*args, **kwargs)
        x, *scores = WithScores(layer)(*args, **kwargs)
        for name, of_layer in zip(names, scores, strict=True):
            found[name] += of_layer if isinstance(of_layer, list) else [of_layer]
        return x

    graph = keras.models.clone_model(
        as_plain_model(model), clone_function=lambda layer: layer, call_function=call
    )
    return keras.Model(graph.input, [graph.outputs, list(found.values())])


class WithScores(OfLayer):
    """A layer with its scores: Keras's graphs take no layer that gives one output, and several."""

    def __init__(self, layer):
        super().__init__(layer, functools.partial(layer, return_attention_scores=True))

    def compute_mask(self, x, previous_mask=None):
        return previous_mask  # for the first output

    def call(self, x, *others, **options):
        return self.method(x, *others, **options)
