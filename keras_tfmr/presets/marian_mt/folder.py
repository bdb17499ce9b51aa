"""The folder that transformers saves a MarianMTModel and its tokenizer into."""

import os
import pathlib
from typing import Any, NamedTuple

import keras
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from keras_tfmr._files import read_json
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.errors import PresetError
from keras_tfmr.models import Transformer, TransformerConfig
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.marian_mt.tokenizer import MarianTokenizer, joined
from keras_tfmr.presets.marian_mt.weights import BANNED, BIAS, MarianWeight, halves, weights_of

WEIGHTS, VOCABULARY, SECOND = "model.safetensors", "vocab.json", "target_vocab.json"
EPSILON = 1e-5  # of layer normalisation; config.json does not have it
ACTIVATIONS = {  # transformers' names of ours
    "relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
# Options of config.json with one supported value. A model without the option has it, too.
ONLY = {
    "model_type": "marian", "normalize_before": False, "normalize_embedding": False,
    "add_final_layer_norm": False, "static_position_embeddings": True, "add_bias_logits": False,
}  # fmt: skip
# Options of a search that have no effect here, and the values that mean none.
UNUSED = {
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
    "diversity_penalty": 0.0, "do_sample": False, "num_beam_groups": 1, "min_length": 0,
    "forced_bos_token_id": None,
}  # fmt: skip


class Vocabulary(NamedTuple):
    """The subwords of a side.

    Fields:
        pieces: Their spelling, by published id.
        order: The published id of each of our ids: padding, unknown, start, end, then the others.
    """

    pieces: list[str]
    order: np.ndarray


def is_marian_mt(folder: pathlib.Path) -> bool:
    """Whether a folder is one of transformers, whose config.json has a `model_type`."""
    config = folder / "config.json"
    return config.is_file() and b'"model_type"' in config.read_bytes()


class MarianFolder(PresetFolder):
    """A published model as a preset; an error comes before any weight is read.

    Args:
        path: The folder.
        name: The name of the model, for its record.

    Raises:
        PresetError: If a file is missing or damaged, or the model has another architecture.
    """

    def __init__(self, path: pathlib.Path, name: str) -> None:
        super().__init__(path)
        self.name = name
        config, generation = _object(self.config), path / "generation_config.json"
        self.fields = config_fields(config)
        # Older models have the options of a search in config.json.
        options = config | (_object(generation) if generation.exists() else {})
        self.options = {name: value for name, value in options.items() if value is not None}
        self.search = search_of(self.options)
        self.vocabularies = _vocabularies(path, self.options)

    def read_config(self) -> dict[str, Any]:
        """The entry `text_model` and the record of a preset."""
        path = self.path / "tokenizer_config.json"
        stated = _object(path) if path.exists() else {}
        languages = [stated.get(f"{side}_lang") or "" for side in ("source", "target")]
        return {
            "text_model": {
                "class_name": "keras_tfmr>Translator",
                "config": {**self.search, "languages": languages},
            },
            "published": {"name": self.name, "notes": notes_on(self.options)},
        }

    def tokenizers(self) -> tuple[MarianTokenizer, MarianTokenizer]:
        """The `(source, target)` tokenizers."""
        source, target = (
            _tokenizer(self.path, side, each) for side, each in self.vocabularies.items()
        )
        return source, target

    def model(self, weights: str | os.PathLike[str] | bool = True) -> keras.Model:
        """The model with its weights, or with new ones for False."""
        if not isinstance(weights, bool):
            raise PresetError(f"a published model has no other weights. Received: {weights}")
        sizes = {f"{side}_vocab": len(each.order) for side, each in self.vocabularies.items()}
        model = Transformer(TransformerConfig(**sizes, **self.fields), dtype="float32")
        if weights:
            assign(model, self.path / WEIGHTS, self.vocabularies, banned_ids(self.options))
        return model


def config_fields(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `TransformerConfig` for a config.json, except the vocabulary sizes."""
    for option, expected in ONLY.items():
        if (value := config.get(option, expected)) != expected:
            raise PresetError(f"the model has {option}={value!r}; only {expected!r} is supported")
    for option in ("attention_heads", "ffn_dim"):
        ours, theirs = (config.get(f"{side}_{option}") for side in ("encoder", "decoder"))
        if ours != theirs:
            raise PresetError(
                f"the model has encoder_{option}={ours!r} and decoder_{option}={theirs!r}; only "
                "one number for both is supported"
            )
    if (activation := config.get("activation_function")) not in ACTIVATIONS:
        raise PresetError(
            f"the model has activation_function={activation!r}; supported are "
            f"{', '.join(ACTIVATIONS)}"
        )
    return {
        "encoder_layers": config.get("encoder_layers"),  # `TransformerConfig` checks the numbers
        "decoder_layers": config.get("decoder_layers"),
        "d_model": config.get("d_model"),
        "num_heads": config.get("encoder_attention_heads"),
        "dff": config.get("encoder_ffn_dim"),
        "activation": ACTIVATIONS[activation],
        "embedding_scale": bool(config.get("scale_embedding", False)),
        "joint_vocab": bool(config.get("share_encoder_decoder_embeddings", True)),
        "tied_logits": bool(config.get("tie_word_embeddings", True)),
        "norm_epsilon": EPSILON,
        "logits_bias": True,
    }


def search_of(options: dict[str, Any]) -> dict[str, Any]:
    """The published search, as options of a `Translator`; the length penalty is length^alpha."""
    longest = options.get("max_new_tokens") or options.get("max_length", 20) - 1
    search = {
        "num_beams": options.get("num_beams", 1),
        "length_penalty": float(options.get("length_penalty", 1.0)),
        "length_penalty_offset": 0.0,
        "max_length": max(longest, 1),
    }
    DecodingConfig(**search)  # an error if one is out of range
    return search


def banned_ids(options: dict[str, Any]) -> list[int]:
    """The ids that are never to be produced."""
    banned = {word[0] for word in options.get("bad_words_ids") or [] if len(word) == 1}
    # Padding is never produced anyway; with a bias it would leave the softmax too.
    return sorted(banned - {options.get("pad_token_id")})


def notes_on(options: dict[str, Any]) -> list[str]:
    """A line about each option of the search that has no effect here."""
    sequences = [word for word in options.get("bad_words_ids") or [] if word[1:]]
    notes = [f"bad_words_ids {w}: sequences of several tokens are not banned" for w in sequences]
    for option, unused in UNUSED.items():
        if (value := options.get(option, unused)) != unused:
            notes.append(f"{option}: {value} has no effect here")
    return notes


def assign(
    model: keras.Model, path: pathlib.Path, vocabularies: dict[str, Vocabulary], banned: list[int]
) -> None:
    """Gives a model the weights of a model.safetensors; banned ids get the bias `BANNED`."""
    if not path.exists():
        raise PresetError(
            f"expected a file {path.name}; pytorch_model.bin is a pickle, which can run code when "
            "it is loaded: convert it as docs/guide/pretrained.md says"
        )
    try:
        arrays = load_file(path)
    except (SafetensorError, TypeError, OSError) as error:
        raise PresetError(f"cannot read {path.name}: {error}") from error
    order = np.argsort(halves(model.config.d_model))
    for weight in weights_of(model):
        vocabulary = vocabularies[weight.side] if weight.side else None
        stored = [arrays.pop(n) for n in (weight.name, *weight.aliases) if n in arrays]
        if not stored and weight.name != BIAS:
            raise PresetError(f"{path.name} has no {weight.name}")
        array = stored[0] if stored else np.zeros(len(vocabulary.pieces))
        array = _checked(array.astype("float32"), weight, vocabulary)
        if vocabulary:
            array = array[vocabulary.order]
        if weight.name == BIAS:
            array[np.isin(vocabulary.order, banned)] = BANNED
            array[2] = BANNED  # the start id, which has the row of another id
        if weight.wide is not None:
            array = array.take(order, weight.wide)
        weight.variable.assign(array.T if weight.is_kernel else array)
    arrays = {name for name in arrays if not name.endswith("embed_positions.weight")}
    if arrays:
        raise PresetError(f"{path.name} has {min(arrays)}, which no MarianMTModel has")


def _checked(array: np.ndarray, weight: MarianWeight, vocabulary: Vocabulary | None) -> np.ndarray:
    """An array as it is stored, or a PresetError if its shape is not the model's."""
    expected = [*weight.variable.shape][:: -1 if weight.is_kernel else 1]
    if vocabulary:
        expected[0] = len(vocabulary.pieces)
    array = array.reshape(-1) if len(expected) == 1 else array  # biases of logits are [1, vocab]
    if [*array.shape] != expected:
        shape = [*array.shape]
        raise PresetError(f"{weight.name} has shape {shape}; the config's is {expected}")
    return array


def _vocabularies(folder, options):
    if missing := [name for name in ("vocab_size", "pad_token_id") if name not in options]:
        raise PresetError(f"config.json has no {missing[0]}")
    size = options["vocab_size"]
    source = _vocabulary(folder / VOCABULARY, size, options)
    if not (folder / SECOND).exists():
        return {"source": source, "target": source}
    size = options.get("decoder_vocab_size", size)
    return {"source": source, "target": _vocabulary(folder / SECOND, size, options)}


def _vocabulary(path, size, options):
    ids = _object(path)
    if (most := max(ids.values(), default=0)) >= size:
        raise PresetError(f"{path.name} has the id {most}, the model {size} embeddings")
    if missing := [piece for piece in ("</s>", "<unk>") if piece not in ids]:
        raise PresetError(f"{path.name} has no piece {missing[0]}")
    pieces = [""] * size
    for piece, number in ids.items():
        pieces[number] = piece
    padding, unknown, end = options["pad_token_id"], ids["<unk>"], ids["</s>"]
    start = options.get("decoder_start_token_id", padding)
    rest = [i for i in range(size) if i not in (padding, unknown, end)]
    return Vocabulary(pieces, np.array([padding, unknown, start, end, *rest]))


def _tokenizer(folder, side, vocabulary):
    path, pieces = folder / f"{side}.spm", [vocabulary.pieces[i] for i in vocabulary.order[4:]]
    try:
        return MarianTokenizer(joined(path.read_bytes(), pieces, reads_tags=side == "source"))
    except (OSError, ValueError) as error:
        raise PresetError(f"cannot read {path.name}: {error}") from error


def _object(path):
    value = read_json(path)
    if not isinstance(value, dict):
        raise PresetError(f"{path.name}: expected an object. Received: {value!r:.80}")
    return value
