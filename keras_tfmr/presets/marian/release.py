"""A Marian release: *.npz, decoder.yml, and *vocab.yml with source.spm and target.spm, or
SentencePiece models as vocabularies."""

import json

import numpy as np

from keras_tfmr._files import DAMAGED, npz
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.faster.precision import to_numpy
from keras_tfmr.presets.marian.options import Description, Options, as_text, chosen, decoding_config
from keras_tfmr.presets.marian.published import only, read_spms
from keras_tfmr.presets.marian.vocabulary import read_spm, read_yml, write_yml
from keras_tfmr.presets.marian.weights import LOGITS, arrays_of

_OFF = (
    *("transformer-train-position-embeddings", "transformer-no-projection", "transformer-no-bias"),
    *("transformer-no-affine", "transformer-disable-position-embeddings", "transformer-pool"),
    *("right-left", "ulr", "output-omit-bias"),
)
# What a model can be, in Marian's options.
MODEL = Options(
    expected={
        "type": ("transformer",),
        "transformer-postprocess-emb": ("d", ""),
        "transformer-ffn-depth": (2,),
        "transformer-decoder-ffn-depth": (0, 2),
        "factors-dim-emb": (0,),
        "factors-combine": ("sum",),
        "lemma-dim-emb": (0,),
        "lemma-dependency": ("",),
        "input-types": ("", "[]"),
        "bert-train-type-embeddings": (False, True),
        **dict.fromkeys(_OFF, (False,)),
    },
    sizes={
        "encoder_layers": ("enc-depth",),
        "decoder_layers": ("dec-depth",),
        "d_model": ("dim-emb",),
        "num_heads": ("transformer-heads",),
        "dff": ("transformer-dim-ffn", "transformer-decoder-dim-ffn"),
    },
    choices={
        "activation": (
            ("transformer-ffn-activation",), {("swish",): "silu", ("relu",): "relu"},
        ),
        "decoder_self": (
            ("transformer-decoder-autoreg",), {("self-attention",): "attention", ("rnn",): "ssru"},
        ),
        "norm_first": (
            ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top"),
            {("", "dan", ""): False, ("n", "da", "n"): True},
        ),
    },
)  # fmt: skip
# Further options of a recurrent decoder: {option: its only value}.
RECURRENT = {"dec-cell": "ssru", "transformer-rnn-projection": False, "layer-normalization": False}
OPTIONS = "special:model.yml"  # an array of the .npz
TURNED = f"{LOGITS}t"  # what Marian writes; it reads the other, of older models, too
EPSILON = 1e-9
LONGEST = 512
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
    search = folder / "decoder.yml"
    decoder = _options(search.read_bytes(), search.name) if search.exists() else {}
    path = _model_file(folder, decoder)
    stored, names = _loaded(path, lambda names: {OPTIONS})
    options = _options(stored[OPTIONS].tobytes().rstrip(b"\0"), OPTIONS)
    fields = MODEL.fields_of(options)
    if fields["decoder_self"] == "ssru":
        chosen(options, tuple(RECURRENT), {tuple(RECURRENT.values()): None})
    vocabularies, spms = _vocabularies(folder, decoder, options)
    decoding = decoding_config(
        decoder.get("beam-size", 12), decoder.get("normalize", 0), LONGEST,
        decoder.get("max-length-factor", 3),
    )  # fmt: skip
    return Description(
        config={
            **fields,
            "norm_epsilon": EPSILON,
            "max_wavelength": wavelength(fields["d_model"]),
            "logits_bias": True,
            "joint_vocab": len(vocabularies) == 1 and "Wemb" in names,
            "tied_logits": not {LOGITS, TURNED} & names,
        },
        decoding=decoding,
        vocabularies=(vocabularies[0], vocabularies[-1]),
        spms=spms,
        arrays=lambda _: _arrays(path, options),
        notes=(
            f"A translation ends after {decoding.max_length_ratio:g} tokens for each source token, "
            "as in Marian, or at max_length.",
            *_notes(decoder),
        ),
    )


def _model_file(folder, decoder):
    paths = _here(folder, decoder.get("models"))
    if len(paths) > 1:
        raise PresetError(f"decoder.yml names an ensemble of {len(paths)} models; expected one")
    existing = [path for path in paths if path.exists()]
    path = existing[0] if existing else only(folder, "*best-perplexity.npz", "*.npz")
    if path.suffix != ".npz":
        raise PresetError(f"{path.name}: expected Marian's .npz; its .bin is not supported")
    return path


def _here(folder, names):
    """Paths of the files that decoder.yml names, which are all in its folder now."""
    return [folder / str(name).rsplit("/", 1)[-1] for name in names or ()]


def _loaded(path, choose):
    """{name: array} of those of an .npz that a function of all names chooses; and all names."""
    try:
        with npz(path) as file:
            if OPTIONS not in file.files:
                raise PresetError(f"it has no {OPTIONS}")
            return {name: file[name] for name in choose({*file.files})}, {*file.files}
    except DAMAGED as error:
        raise PresetError(f"{path.name} is not an .npz of Marian: {error}") from error


def _options(content, name):
    """{option: value as str, list or dict} of the bytes of a YAML file."""
    import yaml

    try:
        options = yaml.load(content.decode("utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise PresetError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(options, dict):
        raise PresetError(f"{name}: expected options and their values")
    return options


def _arrays(path, options):
    """{name: array}; each decoder layer with the weights of another one gets a copy of its own."""
    arrays, _ = _loaded(path, lambda names: names - {OPTIONS})
    if TURNED in arrays:
        arrays[LOGITS] = arrays.pop(TURNED).T
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
    named = _here(folder, decoder.get("vocabs"))
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


def write(translator, folder, tokens):
    """Writes model.npz, decoder.yml and the vocabularies to the folder of the SentencePiece models.

    Args:
        translator: A `Translator` of a post-norm `TranslationModel` with Marian's positions.
        folder: The folder.
        tokens: {"source", "target": the name of every id}.
    """
    config, decoding = translator.model.config, translator.config
    table = to_numpy(translator.model.decoder.embedding.tokens.embeddings)
    if table[translator.target_tokenizer.bos_id].any():
        raise ExportError(
            "Marian's decoder starts from zeros, and this model's from a learned embedding"
        )
    orders = {side: _order(tokenizer) for side, tokenizer in translator.tokenizers.items()}
    # Marian reads no vector and no array that is stored as a transposed one.
    arrays = {
        name: np.ascontiguousarray(value if value.ndim == 2 else value[None])
        for name, value in arrays_of(translator.model, orders).items()
    }
    joint, tied = config.joint_vocab, config.tied_logits
    options = MODEL.of(config) | {
        "version": "v1.12.0",
        "dim-vocabs": [len(order) for order in orders.values()],
        "tied-embeddings-all": joint and tied,
        "tied-embeddings-src": joint and not tied,
        "tied-embeddings": tied and not joint,
        "transformer-tied-layers": [],
        "input-types": [],
    }
    text = json.dumps(options) + "\0"  # JSON is YAML
    arrays[OPTIONS] = np.frombuffer(text.encode(), "int8")
    np.savez(folder / "model.npz", **arrays)
    names = {side: "vocab.yml" if joint else f"{side}.vocab.yml" for side in orders}
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
