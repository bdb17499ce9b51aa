"""Writes a Transformer as a MarianMTModel of transformers, with its tokenizer."""

import json
import pathlib
from typing import Any

import numpy as np
from safetensors.numpy import save

from keras_tfmr.errors import ExportError
from keras_tfmr.export.other_engines import checked_config
from keras_tfmr.precision import to_numpy
from keras_tfmr.presets.marian_mt.folder import ACTIVATIONS, EPSILON, SECOND, VOCABULARY, WEIGHTS
from keras_tfmr.presets.marian_mt.weights import halves, weights_of

POSITIONS = 1024


def write_marian_mt(translator: Any, folder: pathlib.Path) -> None:
    """Writes a MarianMTModel and its vocabulary into a folder, as transformers saves them.

    Its model must be a post-norm `TranslationModel` with sinusoidal positions.
    """
    config = checked_config(translator.model, "MarianMTModel", "norm_epsilon")
    if config.norm_epsilon > EPSILON or config.d_model % 2:
        raise ExportError(
            f"MarianMTModel needs norm_epsilon={EPSILON} or less and an even d_model. Received: "
            f"norm_epsilon={config.norm_epsilon}, d_model={config.d_model}"
        )
    (folder / WEIGHTS).write_bytes(save(_arrays(translator.model), {"format": "pt"}))
    for name, value in _texts(translator).items():
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (folder / name).write_text(text, encoding="utf-8")


def _arrays(model):
    """{transformers' name: float32 array} of a `TranslationModel`."""
    arrays, order = {}, halves(model.config.d_model)
    for weight in weights_of(model):
        if weight.variable is None:  # the bias of the logits
            array = np.zeros(model.config.target_vocab, "float32")
        else:
            array = to_numpy(weight.variable)
        array = array.T if weight.is_kernel else array
        array = array if weight.wide is None else array.take(order, weight.wide)
        arrays[weight.name] = np.ascontiguousarray(array)
    arrays["final_logits_bias"] = arrays["final_logits_bias"][None]  # [1, vocab]
    return arrays


def _texts(translator):
    """{name: content} of the JSON files."""
    config, decoding = translator.model.config, translator.config
    target = translator.target_tokenizer
    ids = {
        "pad_token_id": target.pad_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.bos_id,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }
    vocabularies = {
        side: {name: number for number, name in enumerate(tokenizer.names())}
        for side, tokenizer in translator.tokenizers.items()
    }
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
            "activation_function": next(
                theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation
            ),
            "scale_embedding": config.embedding_scale,
            "share_encoder_decoder_embeddings": config.joint_vocab,
            "tie_word_embeddings": config.tied_logits,
            "dropout": config.dropout_rate,
            "max_position_embeddings": POSITIONS,
            **ids,
        },
        "generation_config.json": {
            "num_beams": decoding.num_beams,
            "max_length": decoding.max_length + 1,  # in transformers, it includes the start id
            "length_penalty": decoding.length_penalty,
            "bad_words_ids": [[target.pad_id], [target.unknown_id], [target.bos_id]],
            **ids,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": not config.joint_vocab,
            "model_max_length": translator.max_source_length,
            "source_lang": translator.languages[0] or None,
            "target_lang": translator.languages[1] or None,
        },
        VOCABULARY: vocabularies["source"],
    }
    return files if config.joint_vocab else {**files, SECOND: vocabularies["target"]}
