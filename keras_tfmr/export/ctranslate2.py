"""Writes a Transformer as a CTranslate2 model, with CTranslate2's own model specification."""

import pathlib
from typing import Any

import numpy as np

from keras_tfmr.errors import ExportError
from keras_tfmr.export.other_engines import checked_config
from keras_tfmr.models.transformer import embeddings_of
from keras_tfmr.precision import to_numpy
from keras_tfmr.shortlist import Shortlist

# CTranslate2 decodes up to 256 tokens by default, and fails where it has no position.
POSITIONS = 512


def write_ctranslate2(translator: Any, folder: pathlib.Path, shortlist: Shortlist | None) -> None:
    """Writes a model for CTranslate2 into a folder.

    The weights are those of the translator, in float32; CTranslate2 can quantise them when it loads
    them. Its input is the tokens of a source, without the end id, which CTranslate2 adds. To get
    the same translations, give these options with every call, so that it never produces the
    unknown, padding and start ids and may give an empty translation:
    `disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=0`.
    A shortlist becomes its `vmap.txt`, which it reads with the option `use_vmap=True`.
    """
    config = checked_config(
        translator.model, "CTranslate2", "norm_first", "norm_epsilon", "max_wavelength"
    )
    source = _tokens(translator.source_tokenizer, config.source_vocab)
    target = _tokens(translator.target_tokenizer, config.target_vocab)
    longest = max(POSITIONS, translator.max_source_length, translator.config.max_length)
    spec = _spec(translator.model, config, source, target, longest)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    if shortlist is not None:
        vmap = "".join(f"{line}\n" for line in _vmap(shortlist, source, target))
        (folder / "vmap.txt").write_text(vmap, encoding="utf-8")


def _spec(model, config, source_tokens, target_tokens, longest):
    """A `ctranslate2.specs.TransformerSpec` of a model's weights, for `longest` positions."""
    try:
        from ctranslate2.specs import common_spec, transformer_spec
    except ImportError as error:
        raise ExportError(
            f"the format needs ctranslate2: pip install ctranslate2 ({error})"
        ) from error
    encoder, decoder = model.get_layer("encoder"), model.get_layer("decoder")
    source, target = embeddings_of(model)
    activations = common_spec.Activation
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm_first,
        activation={
            "relu": activations.RELU,
            "gelu": activations.GELU,
            "gelu_tanh": activations.GELUTanh,
            "silu": activations.SWISH,
        }[config.activation],
    )
    spec.encoder.embeddings[0].weight = to_numpy(source.tokens.embeddings)
    spec.decoder.embeddings.weight = to_numpy(target.tokens.embeddings)
    for side, stack in ((spec.encoder, encoder), (spec.decoder, decoder)):
        side.scale_embeddings = config.embedding_scale
        positions = target.positions(np.arange(longest))
        side.position_encodings.encodings = to_numpy(positions)
        if config.norm_first:
            _norm(stack.norm, side.layer_norm)
    _projection(model, target, spec.decoder.projection)
    for ours, theirs in zip(encoder.layers, spec.encoder.layer, strict=True):
        _self_attention(ours.self_attention, theirs.self_attention)
        _feed_forward(ours.feed_forward, theirs.ffn)
    for ours, theirs in zip(decoder.layers, spec.decoder.layer, strict=True):
        _self_attention(ours.self_attention, theirs.self_attention)
        _cross_attention(ours.cross_attention, theirs.attention)
        _feed_forward(ours.feed_forward, theirs.ffn)
    spec.register_source_vocabulary(source_tokens)
    spec.register_target_vocabulary(target_tokens)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.add_source_eos = True
    return spec


def _tokens(tokenizer, size):
    """The name of every id, with made-up names for ids that only the model has."""
    names = tokenizer.names()
    return [*names, *(f"<unused_{i}>" for i in range(len(names), size))]


def _vmap(shortlist, source_tokens, target_tokens):
    """The lines of a `vmap.txt`: a source token, a tab, its candidates; first those of all."""

    def line(token, ids):
        return f"{token}\t{' '.join(target_tokens[i] for i in ids)}"

    yield line("", shortlist.always)
    for token, row in zip(source_tokens, shortlist.table, strict=False):
        if row.any():
            yield line(token, row[row > 0])


def _projection(model, embedding, theirs):
    if model.config.tied_logits:
        theirs.weight = to_numpy(embedding.tokens.embeddings)
        bias = embedding.bias if embedding.logits_bias else None
    else:
        dense = model.get_layer("logits").dense
        theirs.weight, bias = to_numpy(dense.kernel).T.copy(), dense.bias
    if bias is not None:
        theirs.bias = to_numpy(bias)


def _linear(theirs, *dense):
    theirs.weight = np.concatenate([to_numpy(layer.kernel).T for layer in dense])
    theirs.bias = np.concatenate([to_numpy(layer.bias) for layer in dense])


def _norm(ours, theirs):
    theirs.gamma, theirs.beta = to_numpy(ours.gamma), to_numpy(ours.beta)


def _self_attention(ours, theirs):
    attention = ours.attention
    _linear(theirs.linear[0], attention.query_dense, attention.key_dense, attention.value_dense)
    _linear(theirs.linear[1], attention.output_dense)
    _norm(ours.residual.norm, theirs.layer_norm)


def _cross_attention(ours, theirs):
    attention = ours.attention
    _linear(theirs.linear[0], attention.query_dense)
    _linear(theirs.linear[1], attention.key_dense, attention.value_dense)
    _linear(theirs.linear[2], attention.output_dense)
    _norm(ours.residual.norm, theirs.layer_norm)


def _feed_forward(ours, theirs):
    _linear(theirs.linear_0, ours.hidden_dense)
    _linear(theirs.linear_1, ours.output_dense)
    _norm(ours.residual.norm, theirs.layer_norm)
