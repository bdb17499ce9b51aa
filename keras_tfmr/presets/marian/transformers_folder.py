"""A folder that transformers saves a MarianMTModel and its tokenizer into."""

import json

import numpy as np

from keras_tfmr.errors import PresetError
from keras_tfmr.presets.marian.options import Description, Options, decoding_config
from keras_tfmr.presets.marian.published import json_object, read_spms
from keras_tfmr.presets.marian.vocabulary import vocabulary_of
from keras_tfmr.presets.marian.weights import BIAS, arrays_of, transformers_names, turned

_ACTIVATIONS = {
    "relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
# What a model can be, in options of config.json.
MODEL = Options(
    expected={
        "model_type": ("marian",),
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "static_position_embeddings": (True,),
        "add_bias_logits": (False,),
    },
    sizes={
        "encoder_layers": ("encoder_layers",),
        "decoder_layers": ("decoder_layers",),
        "d_model": ("d_model",),
        "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "dff": ("encoder_ffn_dim", "decoder_ffn_dim"),
        "source_vocab": ("vocab_size",),
    },
    choices={
        "activation": (("activation_function",), {(k,): v for k, v in _ACTIVATIONS.items()}),
        "embedding_scale": (("scale_embedding",), {(False,): False, (True,): True}),
        "joint_vocab": (
            ("share_encoder_decoder_embeddings",), {(True,): True, (False,): False}
        ),
        "tied_logits": (("tie_word_embeddings",), {(True,): True, (False,): False}),
    },
)  # fmt: skip
# Options of a search that have no effect here, and the values with which they have none anyway.
UNUSED = {
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
    "diversity_penalty": 0.0, "do_sample": False, "num_beam_groups": 1, "min_length": 0,
    "forced_bos_token_id": None,
}  # fmt: skip
EPSILON = 1e-5
POSITIONS = 1024
WEIGHTS, VOCABULARY, SECOND = "model.safetensors", "vocab.json", "target_vocab.json"


def describe(folder):
    """The `Description` of a folder.

    Raises:
        PresetError: If a file is missing or cannot be read, or the model has another architecture;
            the message names the option.
    """
    config = json_object(folder / "config.json")
    fields = MODEL.fields_of(config)
    size = fields.pop("source_vocab")
    generation = folder / "generation_config.json"
    # Older models have these options in config.json.
    options = config | (json_object(generation) if generation.exists() else {})
    options = {name: value for name, value in options.items() if value is not None}
    banned, notes = _banned(options)
    longest = options.get("max_new_tokens") or options.get("max_length", 20) - 1
    return Description(
        config={**fields, "norm_epsilon": EPSILON, "logits_bias": True},
        decoding=decoding_config(
            options.get("num_beams", 1), options.get("length_penalty", 1.0), max(longest, 1)
        ),
        vocabularies=_vocabularies(folder, config, options, size),
        spms=read_spms(folder),
        arrays=lambda config: _arrays(folder / WEIGHTS, config),
        banned=banned,
        notes=tuple(notes),
        name=config.get("_name_or_path"),
    )


def _arrays(path, config):
    """The model's arrays under Marian's names, matrices as [in, out]."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise PresetError(
            f"expected a file {path.name}; pytorch_model.bin is a pickle, which can run code when "
            "it is loaded: convert it as docs/guide/pretrained.md says"
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, TypeError) as error:
        raise PresetError(f"cannot read {path.name}: {error}") from error
    arrays, names = {}, transformers_names(config)
    unknown = [key for key in tensors.keys() - names if not key.endswith("embed_positions.weight")]
    if unknown:
        raise PresetError(f"{path.name} has {min(unknown)}, which no Marian model has")
    for key, name in names.items():
        if key in tensors:  # the first of several names of one table
            arrays.setdefault(name, turned(name, tensors[key].astype("float32", copy=False)))
    arrays.setdefault(BIAS, np.zeros(config.target_vocab, "float32"))
    return arrays


def _banned(options):
    """The ids that are never to be produced, and notes about options that have no effect here."""
    words = options.get("bad_words_ids") or []
    banned, several = {word[0] for word in words if len(word) == 1}, [w for w in words if w[1:]]
    notes = [f"bad_words_ids {w}: sequences of several tokens are not banned" for w in several]
    others = {n: options[n] for n, unused in UNUSED.items() if options.get(n, unused) != unused}
    notes += [f"{name}: {value} has no effect here" for name, value in others.items()]
    # Padding is never produced anyway; with a bias it would leave the softmax too.
    return tuple(sorted(banned - {options.get("pad_token_id")})), notes


def _vocabularies(folder, config, options, size):
    start = options.get("decoder_start_token_id", config.get("pad_token_id"))
    fields = {"pad_id": config.get("pad_token_id"), "bos_id": start}
    source = vocabulary_of(json_object(folder / VOCABULARY), VOCABULARY, size, **fields)
    if not (folder / SECOND).exists():
        return source, source
    size = config.get("decoder_vocab_size") or size
    return source, vocabulary_of(json_object(folder / SECOND), SECOND, size, **fields)


def write(translator, folder, tokens):
    """Writes config, vocabularies and weights to the folder of the SentencePiece models.

    Args:
        translator: A `Translator` of a post-norm `TranslationModel` with sinusoidal positions.
        folder: The folder.
        tokens: {"source", "target": the name of every id}.
    """
    from safetensors.numpy import save

    config, names = translator.model.config, {}
    for theirs, name in transformers_names(config).items():
        names.setdefault(name, theirs)
    arrays = {
        names[name]: turned(name, array) for name, array in arrays_of(translator.model).items()
    }
    bias = names[BIAS]
    arrays[bias] = arrays[bias][None]  # [1, vocab]
    (folder / WEIGHTS).write_bytes(save(arrays, metadata={"format": "pt"}))
    for name, value in _files(translator, tokens).items():
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (folder / name).write_text(text, encoding="utf-8")


def _files(translator, tokens):
    config, decoding = translator.model.config, translator.config
    target = translator.target_tokenizer
    ids = {
        "pad_token_id": target.pad_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.bos_id,
        "bos_token_id": None,
        "forced_eos_token_id": None,
    }
    numbers = {side: {name: i for i, name in enumerate(names)} for side, names in tokens.items()}
    files = {
        "config.json": {
            "architectures": ["MarianMTModel"],
            "is_encoder_decoder": True,
            "decoder_vocab_size": config.target_vocab,
            "dropout": config.dropout_rate,
            "max_position_embeddings": POSITIONS,
            **MODEL.of(config),
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
        },
        VOCABULARY: numbers["source"],
    }
    return files if config.joint_vocab else {**files, SECOND: numbers["target"]}
