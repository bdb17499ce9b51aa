"""Reads a folder that transformers saved a MarianMTModel and its tokenizer into."""

import re

import numpy as np

from training.marian.files import by_id, read_json, read_spms
from training.marian.published import MarianError, Published, Vocabulary, decoding_options

# What the imported architecture is: {option of config.json: the value that it has}.
EXPECTED = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "add_bias_logits": False,
}
ACTIVATIONS = {
    "relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
EPSILON = 1e-5
# The parts of a layer: {name in transformers: name in Marian}.
PARTS = {
    "self_attn_layer_norm": "self_Wo_ln",
    "encoder_attn_layer_norm": "context_Wo_ln",
    "final_layer_norm": "ffn_ffn_ln",
    "self_attn": "self",
    "encoder_attn": "context",
    "fc1": "ffn_{}1",
    "fc2": "ffn_{}2",
}
PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
LAYER = re.compile(
    r"model\.(encoder|decoder)\.layers\.(\d+)\.(\w+)\.(?:(\w+_proj)\.)?(weight|bias)"
)
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
        MarianError: If a file is missing or cannot be read, or the model has another architecture;
            the message names the option.
    """
    config = read_json(folder / "config.json")
    _check(config)
    arrays = _arrays(folder, config)
    generation = folder / "generation_config.json"
    # Older models have these options in config.json.
    options = {**config, **(read_json(generation) if generation.exists() else {})}
    banned, notes = _bad_words(options)
    source, target = _vocabularies(folder, config, options)
    return Published(
        name=config.get("_name_or_path") or name,
        form="transformers folder",
        config=_model_config(config, arrays),
        arrays=arrays,
        source=source,
        target=target,
        spms=read_spms(folder),
        decoding=decoding_options(
            _option(options, "num_beams", 1),
            _option(options, "length_penalty", 1.0),
            _longest(options),
        ),
        banned=banned,
        notes=(*notes, *_search_notes(options)),
    )


def _model_config(config, arrays):
    return {
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
    }


def _option(options, name, default):
    value = options.get(name)
    return default if value is None else value


def _longest(options):
    if options.get("max_new_tokens"):
        return int(options["max_new_tokens"])
    return max(int(_option(options, "max_length", 20)) - 1, 1)  # theirs includes the start id


def _check(config):
    if config.get("model_type") != "marian":
        raise MarianError(
            f"config.json: expected model_type marian, found {config.get('model_type')}"
        )
    for option, expected in EXPECTED.items():
        if bool(config.get(option, expected)) != expected:
            raise MarianError(
                f"the model has {option}: {config[option]}, which is not imported; expected "
                f"{expected}"
            )
    if config.get("activation_function") not in ACTIVATIONS:
        raise MarianError(
            f"the model has activation_function: {config.get('activation_function')}, which is not "
            f"imported; expected one of {', '.join(ACTIVATIONS)}"
        )
    for option in ("attention_heads", "ffn_dim"):
        sides = [config.get(f"{side}_{option}") for side in ("encoder", "decoder")]
        if sides[0] != sides[1]:
            raise MarianError(
                f"the model has {option} of {sides[0]} in the encoder and {sides[1]} in the "
                "decoder; expected one number"
            )


def _arrays(folder, config):
    path = folder / "model.safetensors"
    if not path.exists():
        raise MarianError(_without_safetensors(folder))
    from safetensors import SafetensorError, safe_open

    arrays = {}
    try:
        with safe_open(path, framework="np") as file:
            for key in file.keys():  # noqa: SIM118  (it is no dictionary)
                _take(arrays, key, file.get_tensor(key).astype("float32", copy=False))
    except (SafetensorError, TypeError) as error:
        raise MarianError(f"cannot read model.safetensors: {error}") from error
    _tie(arrays, config)
    return arrays


def _without_safetensors(folder):
    if not (folder / "pytorch_model.bin").exists():
        return "expected a file model.safetensors"
    return (
        "pytorch_model.bin is a pickle, which can run code when it is loaded; convert it where "
        'torch is installed: python -c "from transformers import MarianMTModel as M; '
        "M.from_pretrained('FOLDER').save_pretrained('FOLDER')\""
    )


def _take(arrays, key, value):
    """Stores an array under Marian's name, a matrix as [in, out]."""
    if key.endswith("embed_positions.weight"):
        _check_positions(value)
    elif key in TABLES:
        arrays[TABLES[key]] = value
    elif found := LAYER.fullmatch(key):
        side, number, part, projection, kind = found.groups()
        if part not in PARTS or (projection and projection not in PROJECTIONS):
            raise MarianError(f"model.safetensors has {key}, which no Marian model has")
        name = f"{side}_l{int(number) + 1}_{PARTS[part]}"
        if projection:
            name += f"_{'W' if kind == 'weight' else 'b'}{PROJECTIONS[projection]}"
        elif part.startswith("fc"):
            name = name.format("W" if kind == "weight" else "b")
        else:
            name += "_scale" if kind == "weight" else "_bias"
        arrays[name] = np.ascontiguousarray(value.T)
    else:
        raise MarianError(f"model.safetensors has {key}, which no Marian model has")


def _check_positions(table):
    length, width = table.shape
    angles = np.arange(length)[:, None] / 10_000.0 ** (2 * np.arange(width // 2) / width)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    if not np.allclose(table, expected, atol=1e-3):
        raise MarianError("the model has learned position embeddings; expected sinusoids")


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


def _bad_words(options):
    words = options.get("bad_words_ids") or []
    notes = [
        f"bad_words_ids {word}: sequences of several tokens are not banned"
        for word in words
        if len(word) != 1
    ]
    banned = {word[0] for word in words if len(word) == 1}
    # Padding is never produced anyway; with a bias it would leave the softmax too.
    return tuple(sorted(banned - {options.get("pad_token_id")})), notes


def _search_notes(options):
    off = {
        "no_repeat_ngram_size": 0,
        "encoder_no_repeat_ngram_size": 0,
        "repetition_penalty": 1.0,
        "diversity_penalty": 0.0,
        "do_sample": False,
        "num_beam_groups": 1,
        "min_length": 0,
        "forced_bos_token_id": None,
    }
    return [
        f"{name}: {options[name]} has no effect here"
        for name, value in off.items()
        if options.get(name) not in (None, value)
    ]


def _vocabularies(folder, config, options):
    ids = read_json(folder / "vocab.json")
    start = _option(options, "decoder_start_token_id", config.get("pad_token_id"))
    fields = {"pad_id": config.get("pad_token_id"), "start_id": start}
    size = config["vocab_size"]
    source = _vocabulary(ids, "vocab.json", size, fields)
    second = folder / "target_vocab.json"
    if not second.exists():
        return source, source
    size = config.get("decoder_vocab_size") or size
    return source, _vocabulary(read_json(second), second.name, size, fields)


def _vocabulary(ids, name, size, fields):
    missing = [piece for piece in ("</s>", "<unk>") if piece not in ids]
    if missing:
        raise MarianError(f"{name} has no piece {missing[0]}")
    pieces = by_id(ids, name)
    if len(pieces) > size:
        raise MarianError(f"{name} has {len(pieces)} pieces, the model {size} embeddings")
    pieces += [""] * (size - len(pieces))
    return Vocabulary(pieces, end_id=ids["</s>"], unknown_id=ids["<unk>"], **fields)
