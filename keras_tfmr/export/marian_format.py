"""Writes a Transformer as a folder that transformers loads as a MarianMTModel, or Marian itself."""

import json
import os
import pathlib

import numpy as np

from keras_tfmr.export import marian_names, marian_release
from keras_tfmr.export.check import ExportError
from keras_tfmr.export.format_parts import COMMON, check_architecture, folder, tokens
from keras_tfmr.text.translator import Translator

_EXPECTED = {**COMMON, "norm_first": (False,)}
_ACTIVATIONS = {"relu": "relu", "silu": "swish", "gelu": "gelu", "gelu_tanh": "gelu_new"}
# MarianMTModel's own, which cannot be set. If ours is smaller, no logit differs by 1e-4.
_EPSILON = 1e-5
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
        from safetensors.numpy import save
    except ImportError as error:
        raise ExportError(
            f"the format needs safetensors: pip install safetensors ({error})"
        ) from error
    model = translator.model
    waves = (10_000, marian_release.wavelength(model.config))
    check_architecture(model, "MarianMTModel", {**_EXPECTED, "max_wavelength": waves})
    if model.config.norm_epsilon > _EPSILON:
        raise ExportError(f"MarianMTModel has no counterpart of {model.config.norm_epsilon=}")
    if model.config.d_model % 2:
        raise ExportError(f"MarianMTModel needs an even width. Received: {model.config.d_model=}")
    with folder(path, translator) as unfinished:
        if model.config.max_wavelength == waves[1]:
            marian_release.write_release(translator, unfinished)
        else:
            # Contiguous: the file stores the memory of an array, ignoring that it is transposed.
            arrays = {name: np.ascontiguousarray(value) for name, value in _arrays(model)}
            content = save(arrays, metadata={"format": "pt"})
            (unfinished / "model.safetensors").write_bytes(content)
            for name, value in _files(translator).items():
                text = json.dumps(value, ensure_ascii=False, indent=1)
                (unfinished / name).write_text(text, encoding="utf-8")
    return pathlib.Path(path)


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
    config, arrays = model.config, marian_names.arrays(model)
    names = marian_names.transformers_names(config.encoder_layers, config.decoder_layers)
    for theirs, ours in names.items():
        if ours in arrays:  # an encoder has no attention to a context
            yield theirs, arrays[ours].T
    if config.joint_vocab:
        yield "model.shared.weight", arrays["Wemb"]
    else:
        for side in ("encoder", "decoder"):
            yield f"model.{side}.embed_tokens.weight", arrays[f"{side}_Wemb"]
    if not config.tied_logits:
        yield "lm_head.weight", arrays["decoder_ff_logit_out_W"].T
    yield "final_logits_bias", arrays["decoder_ff_logit_out_b"][None]
