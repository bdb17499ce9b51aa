"""Faster copies of finished models: what exports and files are decoded with.

The plain layers know nothing of this. A copy has the same outputs; a layer of it is another one
that computes the same from weights in another form.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_tfmr import compat
from keras_tfmr.faster import int8
from keras_tfmr.faster.precision import (
    assign,
    is_quantized,
    merged_weights,
    to_numpy,
    with_precision,
)
from keras_tfmr.layers import SSRU, MultiHeadAttention, TiedLogits
from keras_tfmr.layers.attention_sublayers import CrossAttention
from keras_tfmr.layers.dot_product import flat
from keras_tfmr.models import LanguageModel, TranslationModel


def optimize_for_decoding(model, precision=None, examples=()):
    """A copy of a finished model that decodes faster, with the same outputs.

    The projections of each self-attention or SSRU are one product. Logits have a table of their
    own, which is transposed once; tied logits transpose that of the embedding in every step. With
    8,000 subwords, a beam search for one sentence takes a tenth less time for it. LoRA is merged.

    Args:
        model: A `TranslationModel` or `LanguageModel`; of others, only the precision changes.
        precision: "float32", "bfloat16" or "int8"; that of the model by default. In int8, the large
            products of a `TranslationModel` or `LanguageModel` and its embeddings: see `int8`.
        examples: For int8, what to call the model with to find the ranges of its inputs, tuples of
            arrays. Without any, products take longer.

    Returns:
        A new model, for decoding only: its weights do not follow those of `model`, and it can be
        neither trained further nor saved. `model` itself if it is quantised, if its layers are not
        those of its config, or if nothing changes.

    Raises:
        ValueError: For another precision, if a quantised model should change its precision, or if
            int8 does not take the model.
        RuntimeError: If this TensorFlow does not multiply in int8.

    >>> from keras_tfmr import LanguageModel, TransformerConfig
    >>> model = LanguageModel(TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> token_ids, fast = np.array([[2, 9, 4]]), optimize_for_decoding(model)
    >>> bool(np.allclose(model(token_ids), fast(token_ids), atol=1e-5))
    True
    """
    if precision == "int8":
        return _int8_copy(model, examples)
    if not isinstance(model, (LanguageModel, TranslationModel)) or is_quantized(model):
        return model if precision is None else with_precision(model, precision)
    copy = _untied_copy(model, precision or model.dtype_policy.name)
    if copy is None:
        return model if precision is None else with_precision(model, precision)
    replace_layers(copy, fuse_projections)
    return copy


def int8_errors(model, examples):
    """{path of a large product: nats}, the worst first: see `int8.errors`."""
    return int8.errors(optimize_for_decoding(model, "float32"), examples, replace_layers)


def _int8_copy(model, examples):
    """A copy in float32 whose large products are int8 ones."""
    copy = optimize_for_decoding(model, "float32")
    if copy is model or not isinstance(model, (LanguageModel, TranslationModel)):
        raise ValueError(
            "int8 takes a TranslationModel or LanguageModel whose layers are those of its config "
            f"and which is not quantised. Received: {type(model).__name__} {model.name!r}"
        )
    int8.quantize(copy, examples, replace_layers)
    return copy


def _untied_copy(model, precision):
    """A copy without tied logits; None if the layers are not those of the config."""
    tied = isinstance(model.logits, TiedLogits)
    config = model.config.replace(tied_logits=False, logits_bias=model.logits.use_bias)
    copy = type(model).from_config(
        {**model.get_config(), "config": config.to_dict(), "dtype": precision}
    )
    if _kinds(copy) != _kinds(model):
        return None
    values = merged_weights(model)
    if tied:
        values[copy.logits.dense.kernel.path] = to_numpy(model.logits.embedding.tokens.embeddings).T
        if model.logits.use_bias:
            values[copy.logits.dense.bias.path] = to_numpy(model.logits.bias)
    assign(copy, values)
    return copy


def _kinds(model):
    """{path: kind} of all layers of a model but its logits."""
    layers = [layer for layer in compat.flatten_layers(model) if layer is not model]
    return {one.path: type(one) for one in layers if not str(one.path).startswith("logits")}


def replace_layers(model, replacement):
    """Puts other layers in the place of some inside a model; shared ones stay shared.

    Args:
        model: A built model.
        replacement: A function of a layer that holds another and of that layer, to the built layer
            that takes its place, or None to keep it. A `Dense` may be replaced by any layer that
            maps `[rows, n]` to `[rows, units]`.

    >>> from keras_tfmr import LanguageModel, TransformerConfig
    >>> model, met = LanguageModel(TransformerConfig.preset("tiny")), []
    >>> replace_layers(model, lambda owner, layer: met.append(type(layer)))
    >>> MultiHeadAttention in met
    True
    """
    replaced = {}
    for owner in compat.flatten_layers(model):
        for name, layer in list(vars(owner).items()):
            if not isinstance(layer, keras.layers.Layer):
                continue
            if id(layer) not in replaced:
                replaced[id(layer)] = replacement(owner, layer)
            if replaced[id(layer)] is not None:
                compat.replace_layer(owner, name, replaced[id(layer)])


def fuse_projections(owner, layer):
    """The layer whose projections are one product, for a self-attention or SSRU; else None."""
    if type(layer) is SSRU:
        return FusedSSRU.of(layer)
    if type(layer) is not MultiHeadAttention or isinstance(owner, CrossAttention):
        return None
    return FusedSelfAttention.of(layer)


class FusedSelfAttention(MultiHeadAttention):
    """Self-attention whose queries, keys and values are one product, by a copy of the weights.

    The division of keys by √key_dim is part of the weights, unless the keys are normalised.
    """

    @classmethod
    def of(cls, attention):
        """The fused copy of a built `MultiHeadAttention`."""
        fused = cls.from_config({**attention.get_config(), "dtype": attention.dtype_policy})
        fused.place = attention.path  # a layer that is put into a model has no path of its own
        for name in ("query_norm", "key_norm", "output_dense"):  # used as they are
            setattr(fused, name, getattr(attention, name))
        parts = attention.query_dense, attention.key_dense, attention.value_dense
        scales = 1.0, fused.key_scale, 1.0
        weights = [
            np.concatenate(
                [to_numpy(w) * scale for w, scale in zip(pieces, scales, strict=True)], axis=-1
            )
            for pieces in zip(*(part.weights for part in parts), strict=True)
        ]
        fused.query_key_value = fused.make_dense(weights[0].shape[1], "query_key_value")
        fused.query_key_value.build((None, weights[0].shape[0]))
        fused.query_key_value.set_weights(weights)
        fused.built = True
        return fused

    @property
    def key_scale(self):
        """Factor for the weights of keys."""
        return 1.0 if self.key_norm is not None else 1 / math.sqrt(self.key_dim)

    def project_self(self, x, rotation=None):
        y = self.query_key_value(flat(x))  # [batch * length, (heads + 2 * kv_heads) * dim]
        heads, kv_heads = self.num_heads, self.num_kv_heads
        if self.key_dim == self.value_dim:
            parts = [heads, heads + kv_heads] if heads != kv_heads else 3
            queries, keys, values = ops.split(self._split_heads(y, x, self.key_dim), parts, axis=1)
        else:
            first, second = heads * self.key_dim, (heads + kv_heads) * self.key_dim
            queries = self._split_heads(y[:, :first], x, self.key_dim)
            keys = self._split_heads(y[:, first:second], x, self.key_dim)
            values = self._split_heads(y[:, second:], x, self.value_dim)
        return self.finish_queries(queries, rotation), self.finish_keys(keys, rotation), values


class FusedSSRU(SSRU):
    """An SSRU whose two products are one, by a copy of the weights."""

    @classmethod
    def of(cls, ssru):
        """The fused copy of a built `SSRU`."""
        fused = cls.from_config({**ssru.get_config(), "dtype": ssru.dtype_policy})
        fused.residual, fused.d_model, fused.place = ssru.residual, ssru.d_model, ssru.path
        kernels = [to_numpy(part.kernel) for part in (ssru.forget_dense, ssru.candidate_dense)]
        weights = [np.concatenate(kernels, axis=-1)]
        if ssru.use_bias:  # of the forget gate alone
            weights.append(np.pad(to_numpy(ssru.forget_dense.bias), (0, ssru.d_model)))
        fused.dense = fused.make_dense(2 * ssru.d_model, "forget_candidate")
        fused.dense.build((None, ssru.d_model))
        fused.dense.set_weights(weights)
        fused.built = True
        return fused

    def project(self, x):
        return self.dense(x)
