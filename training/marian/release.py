"""Reads a Marian release: *.npz, *vocab.yml, source.spm, target.spm, decoder.yml."""

import re

import numpy as np
import yaml

from training.marian.files import by_id, only, read_spms
from training.marian.published import MarianError, Published, Vocabulary, decoding_options

# The architectures that can be imported, in Marian's options: {option: the possible values}. An
# option that a model's file lacks is newer than the model, and off.
EXPECTED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-train-position-embeddings": ("false",),
    "transformer-no-projection": ("false",),
    "transformer-no-bias": ("false",),
    "transformer-no-affine": ("false",),
    "transformer-tied-layers": ("", "[]"),
    "transformer-pool": ("false",),
    "factors-dim-emb": ("0",),
    "factors-combine": ("sum",),
    "lemma-dim-emb": ("0",),
    "lemma-dependency": ("",),
    "input-types": ("", "[]"),
    "right-left": ("false",),
    "ulr": ("false",),
    "bert-train-type-embeddings": ("false", "true"),
}
# Options without effect on a trained model, and why.
WITHOUT_EFFECT = {"transformer-depth-scaling": "it only scales the initial weights"}
EPSILON = 1e-9
LONGEST = 512
ACTIVATIONS = {"swish": "silu", "relu": "relu"}


def read_release(folder, name):
    """The `Published` of a folder.

    Raises:
        MarianError: If a file is missing or cannot be read, or the model has another architecture;
            the message names the option.
    """
    decoder = _yaml(folder / "decoder.yml") if (folder / "decoder.yml").exists() else {}
    arrays = _arrays(_model_file(folder, decoder))
    options = _options(arrays)
    _check(options)
    vocabularies = _vocabularies(folder, decoder)
    width, layers = int(options["dim-emb"]), ("enc-depth", "dec-depth")
    half = width // 2
    joint = vocabularies[0] is vocabularies[-1]
    tied = "decoder_ff_logit_out_W" not in arrays
    config = {
        "encoder_layers": int(options[layers[0]]),
        "decoder_layers": int(options[layers[1]]),
        "d_model": width,
        "num_heads": int(options["transformer-heads"]),
        "dff": int(options["transformer-dim-ffn"]),
        "activation": ACTIVATIONS[options.get("transformer-ffn-activation", "swish")],
        "norm_epsilon": EPSILON,
        # Marian's slowest wave is the one at half - 1, not at half: 10000^(-i / (half - 1)).
        "max_wavelength": 10_000.0 ** (half / (half - 1)),
        "joint_vocab": joint and "Wemb" in arrays,
        "tied_logits": tied,
        "logits_bias": True,
    }
    notes = [
        f"{option} has no effect on a trained model: {why}"
        for option, why in WITHOUT_EFFECT.items()
        if _text(options.get(option)) == "true"
    ]
    return Published(
        name=name,
        form="Marian release",
        config=config,
        arrays=arrays,
        source=vocabularies[0],
        target=vocabularies[-1],
        spms=read_spms(folder),
        decoding=decoding_options(
            decoder.get("beam-size", 12), decoder.get("normalize", 0), LONGEST
        ),
        notes=(*notes, *_decoder_notes(decoder)),
    )


def _model_file(folder, decoder):
    models = decoder.get("models") or []
    if len(models) > 1:
        raise MarianError(f"decoder.yml names an ensemble of {len(models)} models; expected one")
    named = [folder / str(model).rsplit("/", 1)[-1] for model in models]
    if named and named[0].exists():
        return named[0]
    return only(folder, "*best-perplexity.npz", "*.npz")


def _arrays(path):
    if path.suffix != ".npz":
        raise MarianError(f"{path.name}: expected Marian's .npz; its .bin is not imported")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise MarianError(f"{path.name} is not an .npz: {error}") from error


def _options(arrays):
    if "special:model.yml" not in arrays:
        raise MarianError("the .npz is not a Marian model: it has no special:model.yml")
    text = arrays.pop("special:model.yml").tobytes().rstrip(b"\0").decode("utf-8")
    options = yaml.load(text, Loader=yaml.BaseLoader)
    needed = {"enc-depth", "dec-depth", "dim-emb", "transformer-heads", "transformer-dim-ffn"}
    if not isinstance(options, dict) or (
        options.get("type") == "transformer" and needed - {*options}
    ):
        raise MarianError("special:model.yml does not describe a Transformer")
    return options


def _text(value):
    return "" if value is None else str(value).lower()


def _check(options):
    for option, expected in EXPECTED.items():
        value = options.get(option, expected[0])
        if _text(value) not in expected:
            wanted = " or ".join(repr(each) for each in expected)
            raise MarianError(
                f"the model has {option}: {_text(value) or repr('')}, which is not imported; "
                f"expected {wanted}"
            )
    other = options.get("transformer-decoder-dim-ffn", "0")
    if other not in ("0", options["transformer-dim-ffn"]):
        raise MarianError(f"the model has transformer-decoder-dim-ffn: {other}; expected one width")


def _decoder_notes(decoder):
    known = {"models", "vocabs", "beam-size", "normalize", "relative-paths", "mini-batch",
             "maxi-batch", "maxi-batch-sort", "cpu-threads", "devices", "workspace", "alignment",
             "quiet", "quiet-translation"}  # fmt: skip
    off = ("", "0", "0.0", "false", "[]", "none")
    return [
        f"{option}: {value} in decoder.yml has no effect here"
        for option, value in decoder.items()
        if option not in known and _text(value) not in off
    ]


def _vocabularies(folder, decoder):
    named = [folder / str(file).rsplit("/", 1)[-1] for file in decoder.get("vocabs") or []]
    files = [file for file in named if file.exists()]
    if not named or len(files) < len(named):
        files = sorted(folder.glob("*vocab.yml")) or [only(folder, "*vocab.yml")]
        files.sort(key=lambda file: ".trg." in file.name)
    for file in files:
        if file.suffix not in (".yml", ".yaml"):
            raise MarianError(f"{file.name}: expected a vocabulary in YAML, one piece a line")
    if len(files) == 1 or files[0] == files[1]:
        return (_vocabulary(files[0]),)
    return tuple(map(_vocabulary, files[:2]))


def _vocabulary(path):
    ids = read_vocabulary(path)
    if missing := [piece for piece in ("</s>", "<unk>") if piece not in ids]:
        raise MarianError(f"{path.name} has no piece {missing[0]}")
    return Vocabulary(by_id(ids, path.name), end_id=ids["</s>"], unknown_id=ids["<unk>"])


def read_vocabulary(path):
    """{piece: id} of a vocabulary of Marian, a YAML file.

    It is read line by line, not by PyYAML, which also ends lines at U+0085 and U+2028, which occur
    in pieces, and takes ten seconds for 60,000 lines.

    Raises:
        MarianError: If a line is not a piece with its id.
    """
    ids, key = {}, None
    text = path.read_bytes().decode("utf-8")
    for number, line in enumerate(re.split("\r?\n", text), 1):
        if line.startswith("? "):  # a long key is on a separate line
            key = line[2:]
            continue
        found = re.fullmatch(r"(.*): *(\d+)\s*", line, re.DOTALL)
        if found:
            ids[_scalar(found[1] if key is None else key)] = int(found[2])
            key = None
        elif line.strip() and not line.startswith("#") and line not in ("---", "..."):
            raise MarianError(
                f"{path.name}, line {number}: expected a piece and its id, found {line!r}"
            )
    return ids


def _scalar(text):
    if text.startswith('"'):
        plain = text[1:-1]
        return yaml.load(text, Loader=yaml.BaseLoader) if "\\" in plain else plain
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _yaml(path):
    try:
        value = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise MarianError(f"{path.name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise MarianError(f"{path.name}: expected options and their values")
    return value
