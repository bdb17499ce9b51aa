"""Encoders, decoders, their layers and sublayers, finished: whole sequences, and one step."""

from keras import ops

from keras_tfmr.compat import keras_mask
from keras_tfmr.finished.products import Norm, Part, centered, matrix, side_by_side
from keras_tfmr.finished.sublayers import (
    FinishedCrossAttention,
    FinishedFeedForward,
    FinishedSelfAttention,
    Heads,
    Shape,
)
from keras_tfmr.layers import CrossAttention, DecoderLayer
from keras_tfmr.layers.attention_sublayers import SelfAttention
from keras_tfmr.layers.block import Stack
from keras_tfmr.layers.cache import visible
from keras_tfmr.layers.masking import any_key, causal_mask, mask_bias, merge_masks, zero_rows
from keras_tfmr.layers.relative_positions import rotation_and_bias, rotation_and_bias_after


class FinishedLayer(Part):
    """The sublayers of one layer, or those of them that there are, in the order of Figure 1."""

    def __init__(self, kind, centers, self_attention=None, cross_attention=None, feed_forward=None):
        super().__init__()
        self.self_attention = self.cross_attention = self.feed_forward = None
        if self_attention is not None:
            self.self_attention = FinishedSelfAttention(kind, self_attention, centers)
        if cross_attention is not None:
            self.cross_attention = FinishedCrossAttention(kind, cross_attention, centers)
        if feed_forward is not None:
            self.feed_forward = FinishedFeedForward(kind, feed_forward, centers)


def sublayers_of(layer):
    """The sublayers of each layer of a stack, by the names of `FinishedLayer`'s arguments.

    Or those of one layer, or an attention sublayer itself.
    """
    if isinstance(layer, Stack):
        return [sublayers for each in layer.layers for sublayers in sublayers_of(each)]
    if isinstance(layer, CrossAttention):
        return [{"cross_attention": layer}]
    if isinstance(layer, SelfAttention):
        return [{"self_attention": layer}]
    found = {"self_attention": layer.self_attention, "feed_forward": layer.feed_forward}
    if isinstance(layer, DecoderLayer):
        found["cross_attention"] = layer.cross_attention
    return [found]


class FinishedStack(Part):
    """The base of finished encoders and decoders, of any number of layers.

    Args:
        kind: The `Kind`.
        layer: A stack, a layer or an attention sublayer of a model.
    """

    causal = False
    leaves_out_padding = False  # of products: only where nobody reads the outputs at padding

    def __init__(self, kind, layer):
        super().__init__(layer.name)
        self.attention_scores = layer.attention_scores  # a sublayer has fewer than its class here
        self.norm = self.relative_positions = None
        if isinstance(layer, Stack) and layer.norm is not None:
            self.norm = Norm(layer.norm)
        if isinstance(layer, Stack) and layer.relative_positions is not None:
            self.relative_positions = copied(layer.relative_positions, (None,))
        sublayers = sublayers_of(layer)
        self.d_model = next(iter(sublayers[0].values())).attention.output_dense.units
        self.centers = self.norm is not None and self.norm.layer_norm
        self.layers = [FinishedLayer(kind, self.centers, **each) for each in sublayers]

    def call(self, x, mask=None, return_attention_scores=False):
        return self.whole(x, mask, scores=return_attention_scores)

    def whole(self, x, mask, context=None, any_context=None, scores=False):
        """All positions at once, as the `call` of the layer that this was made from.

        Args:
            x: Tensor `[batch, length, d_model]`.
            mask: bool `[batch, length]`, or None.
            context: The output of `read_context`, if there is cross-attention.
            any_context: bool, 0 for the scores of examples without any; or None.
            scores: Whether to return the scores too.
        """
        batch, length, _ = ops.shape(x)
        mask = keras_mask(x) if mask is None else mask
        left_out = mask if self.leaves_out_padding and not scores else None
        shape = Shape.of_tokens(batch, length, left_out)
        positions = ops.arange(length, dtype="int32")
        rotation, bias = rotation_and_bias(self.relative_positions, positions)
        padding = None if mask is None else ops.cast(mask, "bool")[:, None, None]
        earlier = causal_mask(length, length)[None, None] if self.causal else None
        may_attend = merge_masks([padding, earlier])
        bias, attends = mask_bias(may_attend, bias), any_key(may_attend)
        x = shape.packed(self._first(x))
        own, cross = [], []
        for i, layer in enumerate(self.layers):
            if layer.self_attention is not None:
                x, found = layer.self_attention.whole(x, shape, bias, attends, rotation)
                own.append(found)
            if layer.cross_attention is not None:
                read = context["layers"][i]
                x, found = layer.cross_attention.attend(x, shape, read, context.get("bias"))
                found = zero_rows(found, any_context)
                cross.append(found)
            if layer.feed_forward is not None:
                x = layer.feed_forward.of_rows(x)
        x = self._last(x, shape)
        if not scores:
            return x
        found = {"encoder": own, "decoder": own, "cross": cross}
        return x, *(found[name] for name in self.attention_scores)

    def further(self, x, caches, index, context=None, num_beams=1):
        """Tokens after those in the caches, as the `step` of the layer this was made from."""
        shape, of_example = step_shapes(x, num_beams)
        length = shape[1]
        rotation = bias = None
        if caches:  # of the layers with self-attention
            rotation, bias = rotation_and_bias_after(
                self.relative_positions, caches[0], index, length
            )
            bias = mask_bias(visible(caches[0], length), bias)
        x = self._first(x)
        new_caches, caches = [], list(caches)
        for i, layer in enumerate(self.layers):
            if layer.self_attention is not None:
                x, cache = layer.self_attention.after(x, shape, caches.pop(0), bias, rotation)
                new_caches.append(cache)
            if layer.cross_attention is not None:
                read = context["layers"][i]
                x, _ = layer.cross_attention.attend(x, of_example, read, context.get("bias"))
            if layer.feed_forward is not None:
                x = layer.feed_forward.of_rows(x)
        return self._last(x, shape), new_caches

    def empty_cache(self, rows, room=None):
        """The caches of the self-attention of all layers."""
        attending = [layer for layer in self.layers if layer.self_attention is not None]
        return [layer.self_attention.empty_cache(rows, room) for layer in attending]

    def _first(self, x):
        """`[rows, length, d_model]` as the layers read it, float32 `[rows * length, d_model]`."""
        x = ops.reshape(ops.cast(x, "float32"), (-1, self.d_model))
        return centered(x) if self.centers else x

    def _last(self, x, shape):
        """`[tokens, d_model]` as `[rows, length, d_model]`, normalised."""
        if self.norm is not None:
            x = self.norm.scaled(x) if self.centers else self.norm(x)
        return ops.reshape(shape.padded(x), (shape.rows, shape.length, self.d_model))


class FinishedEncoder(FinishedStack):
    """The finished form of an `Encoder`, `EncoderLayer` or `GlobalSelfAttention`."""

    attention_scores = ("encoder",)


class FinishedCausalDecoder(FinishedStack):
    """The finished form of a `CausalDecoder`, `CausalDecoderLayer` or `CausalSelfAttention`."""

    attention_scores = ("decoder",)
    causal = True

    def step(self, x, cache, index):
        return self.further(x, cache, index)


class FinishedDecoder(FinishedStack):
    """The finished form of a `Decoder`, `DecoderLayer` or `CrossAttention`.

    The keys and values of a context are one product for all layers.
    """

    attention_scores = ("decoder", "cross")
    causal = True

    def __init__(self, kind, layer):
        super().__init__(kind, layer)
        attentions = [each["cross_attention"].attention for each in sublayers_of(layer)]
        self.heads = [Heads(attention) for attention in attentions]
        matrices = []
        for heads, attention in zip(self.heads, attentions, strict=True):
            matrices += [heads.key_matrix(attention), matrix(attention.value_dense)]
        place = f"{layer.path}/source"
        self.context_product = kind.product(place, *side_by_side(*matrices))

    def read_context(self, context, context_mask=None):
        """Keys and values of each layer, and the bias of a mask.

        Values of an example without valid positions are zero.
        """
        mask = keras_mask(context) if context_mask is None else context_mask
        batch, length, width = ops.shape(context)
        shape = Shape.of_tokens(batch, length, mask)
        mask = None if mask is None else ops.cast(mask, "bool")[:, None, None]
        attends, layers = any_key(mask), []
        x = ops.reshape(ops.cast(context, "float32"), (-1, width))
        y = self.heads[0].cut(self.context_product(shape.packed(x)), shape)
        parts = ops.split(y, 2 * len(self.heads), axis=1)
        for heads, keys, values in zip(self.heads, parts[::2], parts[1::2], strict=True):
            layers.append([heads.keys(keys), zero_rows(values, attends)])
        return {"layers": layers} if mask is None else {"layers": layers, "bias": mask_bias(mask)}

    def call(self, x, context, mask=None, context_mask=None, return_attention_scores=False):
        read, any_context = self.read_context(context, context_mask), None
        if return_attention_scores and "bias" in read:
            any_context = ops.any(read["bias"] == 0, axis=-1, keepdims=True)  # [batch, 1, 1, 1]
        return self.whole(x, mask, read, any_context, return_attention_scores)

    def step(self, x, cache, index, context, num_beams=1):
        return self.further(x, cache, index, context, num_beams)


class FinishedFeedForwardLayer(Part):
    """The finished form of a `FeedForward` or `GatedFeedForward` outside a layer."""

    position_wise = True

    def __init__(self, kind, layer):
        super().__init__(layer.name)
        self.sublayer = FinishedFeedForward(kind, layer)

    def call(self, x):
        shape = ops.shape(x)
        rows = ops.reshape(ops.cast(x, "float32"), (-1, shape[-1]))
        return ops.reshape(self.sublayer.of_rows(rows), shape)


def step_shapes(x, num_beams):
    """The `Shape` of tokens `[rows, length, d_model]`, and that of examples' queries."""
    if isinstance(x.shape[1], int):  # fewer operations where it is known
        return Shape(-1, x.shape[1]), Shape(-1, num_beams * x.shape[1])
    rows, length, _ = ops.shape(x)
    return Shape(rows, length), Shape(-1, num_beams * length)


def copied(layer, shape):
    """A copy of a layer without layers inside it, with weights of its own."""
    copy = type(layer).from_config(layer.get_config())
    copy.build(shape)
    copy.set_weights(layer.get_weights())
    copy.trainable = False
    return copy
