"""What a model that somebody combined is made of, read from its graph by Keras's public API."""

import dataclasses
from typing import Any

import keras

from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.layers import CausalDecoder, Decoder, Encoder, PositionalEmbedding


@dataclasses.dataclass(frozen=True)
class Graph:
    """The parts of a model around its decoder.

    Fields:
        target_place: The place of the target ids among the inputs of the model.
        embedding: The `PositionalEmbedding` of the target ids.
        decoder: The `Decoder` or `CausalDecoder`.
        encode: From the other inputs to the decoder's context, and to its `context_mask` if it is
            given one; None of a model without a context.
        head: From the decoder's output to the logits.
        encoder: The `Encoder`, if `encode` is an embedding and an encoder and nothing else.
        source_embedding: The embedding before it.
    """

    target_place: int
    embedding: PositionalEmbedding
    decoder: Any
    encode: keras.Model | None
    head: keras.Model
    encoder: Encoder | None = None
    source_embedding: PositionalEmbedding | None = None

    def encoded(self, source: Nested) -> tuple[Tensor, Tensor | None]:
        """The context of the source, and its mask or None."""
        context = keras.tree.flatten(self.encode(source))
        return context[0], context[1] if len(context) > 1 else keras_mask(context[0])

    def decoded(self, ids: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
        """The logits of target ids `[rows, target]` and, with a context, of what was `encoded`."""
        x = self.embedding(ids)
        x = self.decoder(x) if context is None else self.decoder(x, context, context_mask=mask)
        return self.head(x)


def graph_of(model: keras.Model, decoder_class: type) -> Graph:
    """The `Graph` of a functional model that has these parts:

        target ids ─> PositionalEmbedding ─> decoder ─> any layers ─> logits
        other inputs ─> any layers ─> context ─^

    Raises:
        ValueError: If its graph cannot be decoded; the error says why.
    """
    decoder = _only_decoder(model, decoder_class)
    x, *others = keras.tree.flatten(decoder.input)
    target, embedding = _embedded(model.inputs, x)
    if target is None:
        raise ValueError(
            "The decoder must be called in this graph alone. Its first input must be a "
            "PositionalEmbedding of an input of the model, the target ids, and nothing may stand "
            "between them. Received: "
            f"inputs {[tensor.name for tensor in model.inputs]}, decoder input {x}"
        )
    if len(model.outputs) != 1:
        raise ValueError(f"The model must have one output. Received: {len(model.outputs)}")
    context = [tensor for tensor in others if not _is_mask_of(target, tensor)]
    allowed = ["context", "context_mask"] + ["mask"] * (len(context) < len(others))
    arguments = _arguments(keras.Model(model.inputs, decoder.output), decoder)
    if not_allowed := [name for name in arguments if name not in allowed]:
        raise ValueError(
            "The decoder must be called with `x`, `context` and `context_mask` alone. "
            f"Received: {', '.join(not_allowed)}"
        )
    head = _layers_between(decoder.output, model.outputs[0])
    if head is None:
        raise ValueError(
            "The logits must be made of the decoder's output alone. Received: logits of "
            f"{model.name!r}, which are made of something else too"
        )
    head.supports_masking = True
    place = [tensor is target for tensor in model.inputs].index(True)
    if not context:
        return Graph(place, embedding, decoder, None, head)
    sources = [tensor for tensor in model.inputs if tensor is not target]
    encode = _layers_between(_alone(sources), _alone(context))
    if encode is None:
        raise ValueError(
            "What the decoder attends to must be made of the other inputs, not of the target ids. "
            f"Received: other inputs {[tensor.name for tensor in sources]}, and a context that is "
            "made of something else too"
        )
    return Graph(place, embedding, decoder, encode, head, *_encoder(encode, context))


def _only_decoder(model, decoder_class):
    """The decoder of a model; an error unless there is exactly one."""
    found = [layer for layer in model.layers if isinstance(layer, (Decoder, CausalDecoder))]
    if len(found) != 1 or not isinstance(found[0], decoder_class):
        received = ", ".join(type(layer).__name__ for layer in found) or "none"
        raise ValueError(
            f"The model must have exactly one decoder in its graph, a {decoder_class.__name__}. "
            f"Received: {received}"
        )
    return found[0]


def _layers_between(inputs, outputs):
    """The `keras.Model` from inputs to outputs; None if these are made of anything else too.

    To make it is the only public way to learn that.
    """
    try:
        return keras.Model(inputs, outputs)
    except ValueError:
        return None


def _embedded(inputs, x):
    """The input that `x` is the embedding of, and its `PositionalEmbedding`; or None and None."""
    for ids in inputs:
        model = _layers_between(ids, x)
        if model is not None and len(model.operations) == 2:  # the first is the input
            layer = model.operations[1]
            return (ids, layer) if isinstance(layer, PositionalEmbedding) else (None, None)
    return None, None


def _is_mask_of(ids, tensor):
    """Whether a tensor is the mask `ids != 0`, which Keras hands to layers over one tensor."""
    model = _layers_between(ids, tensor)
    names = [] if model is None else [type(operation).__name__ for operation in model.operations]
    return names == ["InputLayer", "NotEqual"]


def _alone(tensors):
    """The only tensor of a list, or the list."""
    return tensors[0] if len(tensors) == 1 else tensors


def _arguments(model, layer):
    """The names of the keyword arguments with which a model calls a layer."""
    [called] = (found for found in model.get_config()["layers"] if found["name"] == layer.name)
    given = called["inbound_nodes"][0]["kwargs"]
    return [name for name, value in given.items() if value not in (None, False)]


def _encoder(encode, context):
    """The encoder and its embedding, if there is nothing else before the decoder."""
    found = [layer for layer in encode.layers if isinstance(layer, Encoder)]
    if len(found) != 1 or len(context) > 1 or found[0].output is not context[0]:
        return None, None
    x, *masks = keras.tree.flatten(found[0].input)
    source, embedding = _embedded(encode.inputs, x)
    alone = _arguments(encode, found[0]) == ["mask"] * len(masks)
    if embedding is None or not alone or not all(_is_mask_of(source, mask) for mask in masks):
        return None, None
    return found[0], embedding
