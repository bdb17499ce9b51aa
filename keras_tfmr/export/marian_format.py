"""Writes a Transformer as a folder that transformers loads as a MarianMTModel, or Marian itself."""

import json
import os
import pathlib

import numpy as np

from keras_tfmr.export import marian_release
from keras_tfmr.export.check import ExportError
from keras_tfmr.export.format_parts import COMMON, begin, check_architecture, tokens
from keras_tfmr.precision import to_numpy
from keras_tfmr.text.translator import Translator

_EXPECTED = {**COMMON, "norm_first": (False,)}
_ACTIVATIONS = {"relu": "relu", "silu": "swish", "gelu": "gelu", "gelu_tanh": "gelu_new"}
# MarianMTModel's own, which cannot be set. If ours is smaller, no logit differs by 1e-4.
_EPSILON = 1e-5
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_POSITIONS = 1024


def write_marian(translator: Translator, path: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a MarianMTModel, its vocabulary and SentencePiece models, as transformers saves them.

    The positions of a model decide: those of a model that was imported from a release of Marian are
    Marian's own, so it becomes such a release again.

    Args:
        translator: A `Translator` of a post-norm `TranslationModel` with sinusoidal positions.
        path: The folder to write to.

    Returns:
        The path.

    Raises:
        ExportError: If MarianMTModel has no such architecture, safetensors is not installed, or the
            folder is not empty.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ExportError(
            f"the format needs safetensors: pip install safetensors ({error})"
        ) from error
    model = translator.model
    waves = (10_000, marian_release.wavelength(model.config))
    check_architecture(model, "MarianMTModel", {**_EXPECTED, "max_wavelength": waves})
    if model.config.norm_epsilon > _EPSILON:
        raise ExportError(f"MarianMTModel has no counterpart of {model.config.norm_epsilon=}")
    folder = begin(path, translator)
    # Contiguous, because the file stores the memory of an array, ignoring that it is transposed.
    arrays = {name: np.ascontiguousarray(value) for name, value in _arrays(model)}
    if model.config.max_wavelength == waves[1]:
        marian_release.write_release(translator, arrays, folder)
        return folder
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    for name, value in _files(translator).items():
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _files(translator):
    config, target = translator.model.config, translator.target_tokenizer
    ids = {
        "pad_token_id": target.pad_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.bos_id,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }
    decoding = translator.config
    files = {
        "config.json": {
            "architectures": ["MarianMTModel"],
            "model_type": "marian",
            "is_encoder_decoder": True,
            "vocab_size": config.source_vocab,
            "decoder_vocab_size": config.target_vocab,
            "d_model": config.d_model,
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
            "encoder_attention_heads": config.num_heads,
            "decoder_attention_heads": config.num_heads,
            "encoder_ffn_dim": config.dff,
            "decoder_ffn_dim": config.dff,
            "activation_function": _ACTIVATIONS[config.activation],
            "dropout": config.dropout_rate,
            "scale_embedding": config.embedding_scale,
            "static_position_embeddings": True,
            "max_position_embeddings": _POSITIONS,
            "share_encoder_decoder_embeddings": config.joint_vocab,
            "tie_word_embeddings": config.tied_logits,
            **ids,
        },
        "generation_config.json": {
            "num_beams": decoding.num_beams,
            "max_length": decoding.max_length + 1,  # in transformers, it includes the start id
            "length_penalty": decoding.length_penalty,
            "bad_words_ids": [[target.pad_id], [target.unknown_id], [target.bos_id]],
            **ids,
        },
        "vocab.json": _vocabulary(translator.source_tokenizer),
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": not config.joint_vocab,
            "model_max_length": translator.max_source_length,
        },
    }
    if not config.joint_vocab:
        files["target_vocab.json"] = _vocabulary(target)
    return files


def _vocabulary(tokenizer):
    return {name: number for number, name in enumerate(tokens(tokenizer))}


def _arrays(model):
    """Pairs of transformers' names and arrays."""
    config = model.config
    halves = np.arange(config.d_model).reshape(-1, 2).T.reshape(-1)  # all sines, then all cosines
    if len(halves) != config.d_model or config.d_model % 2:
        raise ExportError(f"MarianMTModel needs an even width. Received: d_model={config.d_model}")
    yield from _embeddings(model, halves)
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            for name, value in _layer(layer, halves):
                yield f"model.{side}.layers.{number}.{name}", value


def _embeddings(model, halves):
    config = model.config
    tables = {side: to_numpy(getattr(model, side).embedding.tokens.embeddings)[:, halves]
              for side in ("encoder", "decoder")}  # fmt: skip
    if config.joint_vocab:
        yield "model.shared.weight", tables["decoder"]
    else:
        for side, table in tables.items():
            yield f"model.{side}.embed_tokens.weight", table
    if config.tied_logits:
        bias = getattr(model.logits, "bias", None)
    else:
        yield "lm_head.weight", to_numpy(model.logits.dense.kernel)[halves].T
        bias = model.logits.dense.bias
    bias = np.zeros(config.target_vocab, "float32") if bias is None else to_numpy(bias)
    yield "final_logits_bias", bias[None]


def _layer(layer, halves):
    attentions = {"self_attn": layer.self_attention}
    if hasattr(layer, "cross_attention"):
        attentions["encoder_attn"] = layer.cross_attention
    for name, sublayer in attentions.items():
        for ours, theirs in _PROJECTIONS.items():
            dense = getattr(sublayer.attention, f"{ours}_dense")
            out = ours == "output"
            yield from _dense(
                f"{name}.{theirs}", dense, None if out else halves, halves if out else None
            )
        yield from _norm(f"{name}_layer_norm", sublayer.residual.norm, halves)
    yield from _dense("fc1", layer.feed_forward.hidden_dense, halves, None)
    yield from _dense("fc2", layer.feed_forward.output_dense, None, halves)
    yield from _norm("final_layer_norm", layer.feed_forward.residual.norm, halves)


def _dense(name, dense, rows, columns):
    kernel, bias = to_numpy(dense.kernel), to_numpy(dense.bias)
    kernel = kernel if rows is None else kernel[rows]
    yield f"{name}.weight", (kernel if columns is None else kernel[:, columns]).T
    yield f"{name}.bias", bias if columns is None else bias[columns]


def _norm(name, norm, halves):
    yield f"{name}.weight", to_numpy(norm.gamma)[halves]
    yield f"{name}.bias", to_numpy(norm.beta)[halves]
