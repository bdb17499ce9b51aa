"""Writes what Marian itself loads: a model that came from Marian, with its positions and start.

Marian's decoder begins with a vector of zeros, where ours has the start id's embedding; and its
position vectors have other wavelengths than those of transformers.
"""

import json

import numpy as np

from keras_tfmr.export.check import ExportError
from keras_tfmr.export.format_parts import tokens
from keras_tfmr.export.marian_names import arrays
from keras_tfmr.precision import to_numpy

ACTIVATIONS = {"relu": "relu", "silu": "swish"}


def wavelength(config):
    """The longest wavelength of Marian's position vectors, for the width of a config."""
    half = config.d_model // 2
    return 10_000.0 ** (half / (half - 1))


def write_release(translator, folder):
    """Writes model.npz, decoder.yml and the vocabularies to the folder of the SentencePiece models.

    Args:
        translator: A `Translator` of a post-norm `TranslationModel` with Marian's positions.
        folder: The folder.

    Raises:
        ExportError: If Marian cannot hold the model.
    """
    model, config = translator.model, translator.model.config
    if config.activation not in ACTIVATIONS:
        raise ExportError(f"Marian has no counterpart of activation={config.activation!r}")
    start = to_numpy(model.decoder.embedding.tokens.embeddings)[translator.target_tokenizer.bos_id]
    if start.any():
        raise ExportError(
            "Marian's decoder starts from zeros, and this model's from a learned embedding"
        )
    orders = {side: _order(each) for side, each in translator.tokenizers.items()}
    weights = _in_order(arrays(model), orders)
    options = json.dumps(_options(config, orders)) + "\0"  # JSON is YAML
    weights["special:model.yml"] = np.frombuffer(options.encode(), "int8")
    # Marian reads no array that is stored as a transposed one.
    weights = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    np.savez(folder / "model.npz", **weights)
    vocabularies = _write_vocabularies(translator, orders, folder)
    decoding = translator.config
    decoder = {
        "models": ["model.npz"],
        "vocabs": vocabularies,
        "relative-paths": True,
        "beam-size": decoding.num_beams,
        "normalize": decoding.length_penalty,
        "max-length-factor": decoding.max_length_ratio,
    }
    lines = (f"{name}: {json.dumps(value)}\n" for name, value in decoder.items())
    (folder / "decoder.yml").write_text("".join(lines), encoding="utf-8")


def _order(tokenizer):
    """Our ids in Marian's order: the end, unknown subwords, then all that are not special."""
    ids = (tokenizer.eos_id, tokenizer.unknown_id)
    special = {*ids, tokenizer.pad_id, tokenizer.bos_id}
    return [*ids, *(i for i in range(tokenizer.vocab_size) if i not in special)]


def _in_order(weights, orders):
    """The arrays as matrices, with the ids of embeddings and logits in Marian's order."""
    for name, value in weights.items():
        value = value if value.ndim == 2 else value[None]
        if "logit_out" in name:
            value = value[:, orders["target"]]
        elif name.endswith("Wemb"):
            value = value[orders["source" if name == "encoder_Wemb" else "target"]]
        weights[name] = value
    return weights


def _options(config, orders):
    joint, tied = config.joint_vocab, config.tied_logits
    return {
        "type": "transformer",
        "version": "v1.12.0",
        "dim-vocabs": [len(order) for order in orders.values()],
        "dim-emb": config.d_model,
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "tied-embeddings-all": joint and tied,
        "tied-embeddings-src": joint and not tied,
        "tied-embeddings": tied and not joint,
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.dff,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": ACTIVATIONS[config.activation],
        "transformer-decoder-autoreg": "self-attention",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "",
        "input-types": [],
        "transformer-tied-layers": [],
    }


def _write_vocabularies(translator, orders, folder):
    """Writes a piece and its id a line; returns the name of each side's file."""
    names = {side: f"{side}.vocab.yml" for side in orders}
    if translator.model.config.joint_vocab:
        names = dict.fromkeys(orders, "vocab.yml")
    for side, name in names.items():
        known = tokens(translator.tokenizers[side])
        pieces = (json.dumps(known[i], ensure_ascii=False) for i in orders[side])
        lines = (f"{piece}: {number}\n" for number, piece in enumerate(pieces))
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return list(names.values())
