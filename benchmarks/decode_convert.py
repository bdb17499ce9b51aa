"""Our Transformer as a CTranslate2 model: the same weights, for comparing speed and output."""

from pathlib import Path

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from decode_engines import PIECES

from keras_tfmr.layers.positions import positional_encoding


def convert(model, path, longest=512):
    """Writes a post-norm, sinusoidal `TranslationModel` for CTranslate2."""
    config = model.config
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=False,
        activation=common_spec.Activation.RELU,
    )
    table = np.array(model.encoder.embedding.tokens.embeddings)
    target = np.array(model.decoder.embedding.tokens.embeddings)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = target
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = positional_encoding(longest, config.d_model)
        side.scale_embeddings = True
    for ours, theirs in zip(model.encoder.layers, spec.encoder.layer, strict=True):
        _self_attention(ours.self_attention, theirs.self_attention)
        _feed_forward(ours.feed_forward, theirs.ffn)
    for ours, theirs in zip(model.decoder.layers, spec.decoder.layer, strict=True):
        _self_attention(ours.causal_attention, theirs.self_attention)
        _cross_attention(ours.cross_attention, theirs.attention)
        _feed_forward(ours.feed_forward, theirs.ffn)
    spec.register_source_vocabulary(PIECES)
    spec.register_target_vocabulary(PIECES)
    spec.config.layer_norm_epsilon = 1e-6
    spec.validate()
    spec.optimize()
    Path(path).mkdir(parents=True, exist_ok=True)
    spec.save(str(path))


def _linear(theirs, *dense):
    theirs.weight = np.concatenate([np.array(layer.kernel).T for layer in dense])
    theirs.bias = np.concatenate([np.array(layer.bias) for layer in dense])


def _norm(residual, theirs):
    theirs.gamma, theirs.beta = np.array(residual.norm.gamma), np.array(residual.norm.beta)


def _self_attention(ours, theirs):
    attention = ours.attention
    _linear(theirs.linear[0], attention.query_dense, attention.key_dense, attention.value_dense)
    _linear(theirs.linear[1], attention.output_dense)
    _norm(ours.residual, theirs.layer_norm)


def _cross_attention(ours, theirs):
    attention = ours.attention
    _linear(theirs.linear[0], attention.query_dense)
    _linear(theirs.linear[1], attention.key_dense, attention.value_dense)
    _linear(theirs.linear[2], attention.output_dense)
    _norm(ours.residual, theirs.layer_norm)


def _feed_forward(ours, theirs):
    _linear(theirs.linear_0, ours.hidden_dense)
    _linear(theirs.linear_1, ours.output_dense)
    _norm(ours.residual, theirs.layer_norm)
