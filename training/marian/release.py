"""Reads a Marian release: *.npz, decoder.yml, and *vocab.yml with source.spm and target.spm, or
SentencePiece models as vocabularies."""

import numpy as np
import yaml

from training.files import DAMAGED, RunError
from training.marian import Published, as_text, check_options, decoding_options
from training.marian.files import only, read_spms
from training.marian.vocabulary import read_spm, read_yml

# The architectures that can be imported, in Marian's options: {option: the possible values}. An
# option that a model's file lacks is newer than the model, and off.
EXPECTED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "factors-dim-emb": ("0",),
    "factors-combine": ("sum",),
    "lemma-dim-emb": ("0",),
    "lemma-dependency": ("",),
    "input-types": ("", "[]"),
    "bert-train-type-embeddings": ("false", "true"),
    **dict.fromkeys(
        (
            *("transformer-train-position-embeddings", "transformer-no-projection"),
            *("transformer-no-bias", "transformer-no-affine", "transformer-pool"),
            *("transformer-disable-position-embeddings", "right-left", "ulr"),
        ),
        ("false",),
    ),
}
# For a decoder of another kind, further options.
EXPECTED_OF = {
    "rnn": {
        "dec-cell": ("ssru",),
        "transformer-rnn-projection": ("false",),
        "layer-normalization": ("false",),
    }
}
# Where normalisations are, by what Marian calls preprocess, postprocess and postprocess-top:
# {places: whether they come first}.
NORMS = {("", "dan", ""): False, ("n", "da", "n"): True}
EPSILON = 1e-9
LONGEST = 512
ACTIVATIONS = {"swish": "silu", "relu": "relu"}


def read_release(folder, name):
    """The `Published` of a folder.

    Raises:
        RunError: If a file is missing or cannot be read, or the model has another architecture;
            the message names the option.
    """
    decoder = _yaml(folder / "decoder.yml") if (folder / "decoder.yml").exists() else {}
    arrays = _arrays(_model_file(folder, decoder))
    options = _options(arrays)
    _check(options)
    vocabularies, spms = _vocabularies(folder, decoder)
    width = int(options["dim-emb"])
    half = width // 2
    config = {
        "encoder_layers": int(options["enc-depth"]),
        "decoder_layers": int(options["dec-depth"]),
        "d_model": width,
        "num_heads": int(options["transformer-heads"]),
        "dff": int(options["transformer-dim-ffn"]),
        "activation": ACTIVATIONS[options.get("transformer-ffn-activation", "swish")],
        "norm_first": NORMS[_norms(options)],
        "norm_epsilon": EPSILON,
        # Marian's slowest wave is the one at half - 1, not at half: 10000^(-i / (half - 1)).
        "max_wavelength": 10_000.0 ** (half / (half - 1)),
        "decoder_self": "ssru" if _decoder(options) == "rnn" else "attention",
        "joint_vocab": len(vocabularies) == 1 and "Wemb" in arrays,
        "tied_logits": "decoder_ff_logit_out_W" not in arrays,
        "logits_bias": True,
    }
    ratio = float(decoder.get("max-length-factor", 3))
    return Published(
        name=name,
        form="Marian release",
        config=config,
        arrays=_untie_layers(arrays, options),
        source=vocabularies[0],
        target=vocabularies[-1],
        spms=spms,
        decoding=decoding_options(
            decoder.get("beam-size", 12),
            decoder.get("normalize", 0),
            LONGEST,
            max_length_ratio=ratio,
            max_length_extra=0,
        ),
        notes=(
            f"A translation ends after {ratio:g} tokens for each source token, as in Marian, or at "
            "max_length.",
            *_notes(decoder),
        ),
    )


def _decoder(options):
    return options.get("transformer-decoder-autoreg", "self-attention")


def _norms(options):
    places = ("preprocess", "postprocess", "postprocess-top")
    return tuple(as_text(options.get(f"transformer-{place}")) for place in places)


def _untie_layers(arrays, options):
    """Gives each decoder layer that has the weights of another one copies of its own."""
    tied = options.get("transformer-tied-layers") or []
    for number, other in enumerate(tied, 1):
        if str(number) == other:
            continue
        start = f"decoder_l{other}_"
        copies = {n: value for n, value in arrays.items() if n.startswith(start)}
        arrays |= {n.replace(start, f"decoder_l{number}_", 1): v for n, v in copies.items()}
    return arrays


def _model_file(folder, decoder):
    models = decoder.get("models") or []
    if len(models) > 1:
        raise RunError(f"decoder.yml names an ensemble of {len(models)} models; expected one")
    named = [folder / str(model).rsplit("/", 1)[-1] for model in models]
    if named and named[0].exists():
        return named[0]
    return only(folder, "*best-perplexity.npz", "*.npz")


def _arrays(path):
    if path.suffix != ".npz":
        raise RunError(f"{path.name}: expected Marian's .npz; its .bin is not imported")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except DAMAGED as error:
        raise RunError(f"{path.name} is not an .npz: {error}") from error


def _options(arrays):
    if "special:model.yml" not in arrays:
        raise RunError("the .npz is not a Marian model: it has no special:model.yml")
    text = arrays.pop("special:model.yml").tobytes().rstrip(b"\0").decode("utf-8")
    options = yaml.load(text, Loader=yaml.BaseLoader)
    needed = {"enc-depth", "dec-depth", "dim-emb", "transformer-heads", "transformer-dim-ffn"}
    if not isinstance(options, dict) or (
        options.get("type") == "transformer" and needed - {*options}
    ):
        raise RunError("special:model.yml does not describe a Transformer")
    return options


def _check(options):
    check_options(options, EXPECTED | EXPECTED_OF.get(_decoder(options), {}))
    if _norms(options) not in NORMS:
        norms = " or ".join(", ".join(map(repr, places)) for places in NORMS)
        raise RunError(
            "the model has transformer-preprocess, -postprocess and -postprocess-top: "
            f"{', '.join(map(repr, _norms(options)))}, which are not imported; expected {norms}"
        )
    other = options.get("transformer-decoder-dim-ffn", "0")
    if other not in ("0", options["transformer-dim-ffn"]):
        raise RunError(f"the model has transformer-decoder-dim-ffn: {other}; expected one width")


def _notes(decoder):
    known = {"models", "vocabs", "beam-size", "normalize", "max-length-factor", "relative-paths",
             "mini-batch", "maxi-batch", "maxi-batch-sort", "cpu-threads", "devices", "workspace",
             "alignment", "quiet", "quiet-translation"}  # fmt: skip
    off = ("", "0", "0.0", "false", "[]", "none")
    return [
        f"{option}: {value} in decoder.yml has no effect here"
        for option, value in decoder.items()
        if option not in known and as_text(value) not in off
    ]


def _vocabularies(folder, decoder):
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
        spms = tuple(file.read_bytes() for file in (files[0], files[-1]))
        return tuple(map(read_spm, files)), spms
    if kinds - {".yml", ".yaml"}:
        names = " and ".join(file.name for file in files)
        raise RunError(f"{names}: expected vocabularies in YAML, or SentencePiece models")
    return tuple(map(read_yml, files)), read_spms(folder)


def _yaml(path):
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise RunError(f"{path.name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path.name}: expected options and their values")
    return value
