"""A Marian release: *.npz, decoder.yml, and *vocab.yml with source.spm and target.spm, or
SentencePiece models as vocabularies."""

import json
import zipfile
import zlib

import numpy as np

from keras_tfmr.marian.description import (
    Description,
    as_text,
    check_options,
    decoding_config,
    sizes_of,
)
from keras_tfmr.marian.files import only, read_spms
from keras_tfmr.marian.vocabulary import read_spm, read_yml, write_yml
from keras_tfmr.marian.weights import LOGITS, arrays_of
from keras_tfmr.presets import PresetError

# What a model can be, in Marian's options: {option: the possible values, first the one written}.
EXPECTED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "factors-dim-emb": (0,),
    "factors-combine": ("sum",),
    "lemma-dim-emb": (0,),
    "lemma-dependency": ("",),
    "input-types": ([], ""),
    "bert-train-type-embeddings": (False, True),
    **dict.fromkeys(
        (
            *("transformer-train-position-embeddings", "transformer-no-projection"),
            *("transformer-no-bias", "transformer-no-affine", "transformer-pool"),
            *("transformer-disable-position-embeddings", "right-left", "ulr", "output-omit-bias"),
        ),
        (False,),
    ),
}
# For a decoder of another kind, further options.
EXPECTED_OF = {
    "rnn": {
        "dec-cell": ("ssru",),
        "transformer-rnn-projection": (False,),
        "layer-normalization": (False,),
    }
}
# Where normalisations are: {values of these options: whether they come first}.
PLACES = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
NORMS = {("", "dan", ""): False, ("n", "da", "n"): True}
ACTIVATION = "transformer-ffn-activation"
ACTIVATIONS = {"swish": "silu", "relu": "relu"}
SIZES = {
    "encoder_layers": "enc-depth", "decoder_layers": "dec-depth", "d_model": "dim-emb",
    "num_heads": "transformer-heads", "dff": "transformer-dim-ffn",
}  # fmt: skip
EPSILON = 1e-9
LONGEST = 512
# What NumPy raises for an .npz that is damaged, cut short, or none.
_DAMAGED = (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error)
# Options of decoder.yml that are read, or that change no translation.
_KNOWN = {
    "models", "vocabs", "beam-size", "normalize", "max-length-factor", "relative-paths",
    "mini-batch", "maxi-batch", "maxi-batch-sort", "cpu-threads", "devices", "workspace",
    "alignment", "quiet", "quiet-translation",
}  # fmt: skip


def wavelength(width):
    """The longest wavelength of Marian's position vectors.

    Marian's slowest wave is the one at half - 1, not at half: 10000^(-i / (half - 1)).
    """
    half = width // 2
    return 10_000.0 ** (half / (half - 1))


def describe(folder):
    """The `Description` of a folder.

    Raises:
        PresetError: If a file is missing or cannot be read, or the model has another architecture;
            the message names the option.
    """
    decoder = _yaml(folder / "decoder.yml") if (folder / "decoder.yml").exists() else {}
    path = _model_file(folder, decoder)
    names, options = _options(path)
    config = config_of(options)
    vocabularies, spms = _vocabularies(folder, decoder, options)
    decoding = decoding_config(
        decoder.get("beam-size", 12), decoder.get("normalize", 0), LONGEST,
        decoder.get("max-length-factor", 3),
    )  # fmt: skip
    return Description(
        config={
            **config,
            "joint_vocab": len(vocabularies) == 1 and "Wemb" in names,
            "tied_logits": LOGITS not in names,
        },
        decoding=decoding,
        vocabularies=(vocabularies[0], vocabularies[-1]),
        spms=spms,
        arrays=lambda config: _arrays(path, options, config),
        notes=(
            f"A translation ends after {decoding.max_length_ratio:g} tokens for each source token, "
            "as in Marian, or at max_length.",
            *_notes(decoder),
        ),
    )


def config_of(options):
    """Fields of a `TransformerConfig`, of the options in special:model.yml."""
    decoder = as_text(options.get("transformer-decoder-autoreg", "self-attention"))
    activations = {ACTIVATION: tuple(ACTIVATIONS)}
    check_options(options, EXPECTED | activations | EXPECTED_OF.get(decoder, {}))
    norms = tuple(as_text(options.get(place)) for place in PLACES)
    if norms not in NORMS:
        wanted = " or ".join(", ".join(map(repr, places)) for places in NORMS)
        raise PresetError(
            f"the model has {', '.join(PLACES)}: {', '.join(map(repr, norms))}, which are not "
            f"supported; expected {wanted}"
        )
    other = as_text(options.get("transformer-decoder-dim-ffn", 0))
    if other not in ("0", as_text(options.get(SIZES["dff"]))):
        raise PresetError(f"the model has transformer-decoder-dim-ffn: {other}; expected one width")
    sizes = sizes_of(options, SIZES)
    return {
        **sizes,
        "activation": ACTIVATIONS[options.get(ACTIVATION, "swish")],
        "norm_first": NORMS[norms],
        "norm_epsilon": EPSILON,
        "max_wavelength": wavelength(sizes["d_model"]),
        "decoder_self": "ssru" if decoder == "rnn" else "attention",
        "logits_bias": True,
    }


def options_of(config):
    """The options for special:model.yml of a `TransformerConfig`: the inverse of `config_of`."""
    joint, tied = config.joint_vocab, config.tied_logits
    places = {first: norms for norms, first in NORMS.items()}[config.norm_first]
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    return {
        **{option: values[0] for option, values in EXPECTED.items()},
        **{option: getattr(config, field) for field, option in SIZES.items()},
        **dict(zip(PLACES, places, strict=True)),
        "version": "v1.12.0",
        ACTIVATION: activations[config.activation],
        "tied-embeddings-all": joint and tied,
        "tied-embeddings-src": joint and not tied,
        "tied-embeddings": tied and not joint,
        "transformer-tied-layers": [],
    }


def _model_file(folder, decoder):
    models = decoder.get("models") or []
    if len(models) > 1:
        raise PresetError(f"decoder.yml names an ensemble of {len(models)} models; expected one")
    named = [folder / str(model).rsplit("/", 1)[-1] for model in models]
    path = named[0] if named and named[0].exists() else None
    path = path or only(folder, "*best-perplexity.npz", "*.npz")
    if path.suffix != ".npz":
        raise PresetError(f"{path.name}: expected Marian's .npz; its .bin is not supported")
    return path


def _loaded(path, read):
    try:
        with np.load(path, allow_pickle=False) as file:
            return read(file)
    except _DAMAGED as error:
        raise PresetError(f"{path.name} is not an .npz: {error}") from error


def _options(path):
    """The names of a model's arrays, and its options."""
    import yaml

    option_file = "special:model.yml"
    names, stored = _loaded(
        path, lambda file: (file.files, file[option_file] if option_file in file.files else None)
    )
    if stored is None:
        raise PresetError(f"{path.name} is not a Marian model: it has no {option_file}")
    try:
        text = stored.tobytes().rstrip(b"\0").decode("utf-8")
        options = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise PresetError(f"{option_file} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(options, dict):
        raise PresetError(f"{option_file} does not describe a model: expected options")
    return names, options


def _arrays(path, options, config):
    """{name: array}; each decoder layer with the weights of another one gets a copy of its own."""
    arrays = _loaded(path, lambda file: {name: file[name] for name in file.files})
    del arrays["special:model.yml"]
    for number, other in enumerate(options.get("transformer-tied-layers") or [], 1):
        start, own = f"decoder_l{other}_", f"decoder_l{number}_"
        copies = {n: value for n, value in arrays.items() if n.startswith(start)}
        arrays |= {n.replace(start, own, 1): value for n, value in copies.items()}
    return arrays


def _notes(decoder):
    off = ("", "0", "0.0", "false", "[]", "none")
    return [
        f"{option}: {value} in decoder.yml has no effect here"
        for option, value in decoder.items()
        if option not in _KNOWN and as_text(value) not in off
    ]


def _vocabularies(folder, decoder, options):
    """The vocabularies, one for each side or one, and the bytes of two SentencePiece models."""
    named = [folder / str(file).rsplit("/", 1)[-1] for file in decoder.get("vocabs") or []]
    files = [file for file in named if file.exists()]
    if not named or len(files) < len(named):
        files = [file for file in folder.glob("*.spm") if file.stem not in ("source", "target")]
        files = sorted(folder.glob("*vocab.yml")) or files or [only(folder, "*vocab.yml", "*.spm")]
        files.sort(key=lambda file: (".trg." in file.name or "trgvocab" in file.name, file.name))
    files = files[:2] if files[0] != files[-1] else files[:1]
    kinds = {file.suffix for file in files}
    if kinds == {".spm"}:
        spms, read = tuple(file.read_bytes() for file in (files[0], files[-1])), read_spm
    elif kinds - {".yml", ".yaml"}:
        names = " and ".join(file.name for file in files)
        kind = "a factored vocabulary is not supported; " if ".fsv" in kinds else ""
        raise PresetError(f"{names}: {kind}expected vocabularies in YAML, or SentencePiece models")
    else:
        spms, read = read_spms(folder), read_yml
    vocabularies = [read(file) for file in files]
    for file, vocabulary, size in zip(
        files, vocabularies, options.get("dim-vocabs") or (), strict=False
    ):
        if as_text(size).isdecimal() and 0 < int(size) < len(vocabulary.pieces):
            raise PresetError(
                f"{file.name} has {len(vocabulary.pieces)} pieces, the model {size} embeddings"
            )
    return vocabularies, spms


def _yaml(path):
    import yaml

    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise PresetError(f"{path.name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise PresetError(f"{path.name}: expected options and their values")
    return value


def write(translator, folder, tokens):
    """Writes model.npz, decoder.yml and the vocabularies to the folder of the SentencePiece models.

    Args:
        translator: A `Translator` of a post-norm `TranslationModel` with Marian's positions, whose
            start id has an embedding of zeros.
        folder: The folder.
        tokens: {"source", "target": the name of every id}.
    """
    config, decoding = translator.model.config, translator.config
    orders = {side: _order(each) for side, each in translator.tokenizers.items()}
    # Marian reads no vector and no array that is stored as a transposed one.
    arrays = {
        name: np.ascontiguousarray(value if value.ndim == 2 else value[None])
        for name, value in arrays_of(translator.model, orders).items()
    }
    options = options_of(config) | {"dim-vocabs": [len(order) for order in orders.values()]}
    text = json.dumps(options) + "\0"  # JSON is YAML
    arrays["special:model.yml"] = np.frombuffer(text.encode(), "int8")
    np.savez(folder / "model.npz", **arrays)
    names = {side: "vocab.yml" if config.joint_vocab else f"{side}.vocab.yml" for side in orders}
    for side, name in names.items():
        write_yml(folder / name, [tokens[side][i] for i in orders[side]])
    decoder = {
        "models": ["model.npz"],
        "vocabs": [*names.values()],
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
