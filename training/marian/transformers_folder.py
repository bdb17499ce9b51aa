"""Reads a folder that transformers saved a MarianMTModel and its tokenizer into."""

import numpy as np

from keras_tfmr.export.marian_names import transformers_names
from training.files import RunError, read_json
from training.marian import Published, check_options, decoding_options
from training.marian.files import read_spms
from training.marian.vocabulary import vocabulary_of

ACTIVATIONS = {
    "relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
# What the imported architecture is: {option of config.json: the values that it can have}.
EXPECTED = {
    "model_type": ("marian",),
    "activation_function": tuple(ACTIVATIONS),
    "normalize_before": ("false",),
    "normalize_embedding": ("false",),
    "add_final_layer_norm": ("false",),
    "static_position_embeddings": ("true",),
    "add_bias_logits": ("false",),
}
# Options of a search that have no effect here, and the values with which they have none anyway.
UNUSED = {
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
    "diversity_penalty": 0.0, "do_sample": False, "num_beam_groups": 1, "min_length": 0,
    "forced_bos_token_id": None,
}  # fmt: skip
EPSILON = 1e-5
TABLES = {
    "model.shared.weight": "Wemb",
    "model.encoder.embed_tokens.weight": "encoder_Wemb",
    "model.decoder.embed_tokens.weight": "decoder_Wemb",
    "lm_head.weight": "lm_head",
    "final_logits_bias": "decoder_ff_logit_out_b",
}


def read_transformers_folder(folder, name):
    """The `Published` of a folder.

    Raises:
        RunError: If a file is missing or cannot be read, or the model has another architecture;
            the message names the option.
    """
    config = read_json(folder / "config.json")
    _check(config)
    arrays = _arrays(folder, config)
    generation = folder / "generation_config.json"
    # Older models have these options in config.json.
    options = config | (read_json(generation) if generation.exists() else {})
    options = {name: value for name, value in options.items() if value is not None}
    banned, notes = _banned(options)
    source, target = _vocabularies(folder, config, options)
    longest = options.get("max_new_tokens") or options.get("max_length", 20) - 1
    return Published(
        name=config.get("_name_or_path") or name,
        form="transformers folder",
        config={
            "encoder_layers": config["encoder_layers"],
            "decoder_layers": config["decoder_layers"],
            "d_model": config["d_model"],
            "num_heads": config["encoder_attention_heads"],
            "dff": config["encoder_ffn_dim"],
            "activation": ACTIVATIONS[config["activation_function"]],
            "norm_epsilon": EPSILON,
            "embedding_scale": bool(config.get("scale_embedding")),
            "joint_vocab": "Wemb" in arrays,
            "tied_logits": "decoder_ff_logit_out_W" not in arrays,
            "logits_bias": True,
        },
        arrays=arrays,
        source=source,
        target=target,
        spms=read_spms(folder),
        decoding=decoding_options(
            options.get("num_beams", 1), options.get("length_penalty", 1.0),
            max(longest, 1),
        ),
        banned=banned,
        notes=tuple(notes),
    )  # fmt: skip


def _check(config):
    check_options(config, EXPECTED)
    for option in ("attention_heads", "ffn_dim"):
        encoder, decoder = (config.get(f"{side}_{option}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise RunError(
                f"the model has {option} of {encoder} in the encoder and {decoder} in the "
                "decoder; expected one number"
            )


def _arrays(folder, config):
    """The model's arrays under Marian's names, matrices as [in, out]."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / "model.safetensors"
    if not path.exists():
        raise RunError(
            "expected a file model.safetensors; pytorch_model.bin is a pickle, which can run code "
            "when it is loaded: convert it as docs/guide/pretrained.md says"
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, TypeError) as error:
        raise RunError(f"cannot read model.safetensors: {error}") from error
    arrays, names = {}, transformers_names(config["encoder_layers"], config["decoder_layers"])
    for key, value in tensors.items():
        value = value.astype("float32", copy=False)
        if key.endswith("embed_positions.weight"):
            _check_positions(value)
        elif key in TABLES:
            arrays[TABLES[key]] = value
        elif key in names:
            arrays[names[key]] = np.ascontiguousarray(value.T)
        else:
            raise RunError(f"the file has {key}, which no Marian model has")
    _tie(arrays, config)
    return arrays


def _check_positions(table):
    length, width = table.shape
    angles = np.arange(length)[:, None] / 10_000.0 ** (2 * np.arange(width // 2) / width)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if not np.allclose(table, expected, atol=1e-3):
        raise RunError("the model has learned position embeddings; expected sinusoids")


def _tie(arrays, config):
    """Gives each table one name: a shared table can be saved under any of its names."""
    if config.get("share_encoder_decoder_embeddings", True):
        names = ("Wemb", "encoder_Wemb", "decoder_Wemb")
        if config.get("tie_word_embeddings", True):
            names += ("lm_head",)
        tables = [arrays.pop(name) for name in names if name in arrays]
        if tables:
            arrays["Wemb"] = tables[0]
    else:
        arrays.pop("Wemb", None)
        if "decoder_Wemb" not in arrays and "lm_head" in arrays:
            arrays["decoder_Wemb"] = arrays["lm_head"]
        if config.get("tie_word_embeddings", True):
            arrays.pop("lm_head", None)
    if "lm_head" in arrays:
        arrays["decoder_ff_logit_out_W"] = arrays.pop("lm_head").T
    if "decoder_ff_logit_out_b" not in arrays:
        table = arrays.get("Wemb", arrays.get("decoder_Wemb"))
        arrays["decoder_ff_logit_out_b"] = np.zeros((1, len(table)), "float32")


def _banned(options):
    """The ids that are never to be produced, and notes about options that have no effect here."""
    words = options.get("bad_words_ids") or []
    notes = [
        f"bad_words_ids {word}: sequences of several tokens are not banned"
        for word in words
        if len(word) != 1
    ]
    notes += [
        f"{name}: {options[name]} has no effect here"
        for name, value in UNUSED.items()
        if options.get(name) not in (None, value)
    ]
    banned = {word[0] for word in words if len(word) == 1}
    # Padding is never produced anyway; with a bias it would leave the softmax too.
    return tuple(sorted(banned - {options.get("pad_token_id")})), notes


def _vocabularies(folder, config, options):
    start = options.get("decoder_start_token_id", config.get("pad_token_id"))
    fields = {"pad_id": config.get("pad_token_id"), "bos_id": start}
    size, second = config["vocab_size"], folder / "target_vocab.json"
    source = vocabulary_of(read_json(folder / "vocab.json"), "vocab.json", size, **fields)
    if not second.exists():
        return source, source
    size = config.get("decoder_vocab_size") or size
    return source, vocabulary_of(read_json(second), second.name, size, **fields)
