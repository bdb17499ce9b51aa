"""The files of a published model: in a folder, an archive, or a repository of the Hub."""

import contextlib
import gzip
import json
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from keras_tfmr.presets import PresetError

# What a model needs of a repository on the Hub, which often holds other frameworks' weights too.
_WANTED = ["*.json", "*.safetensors", "*.npz", "*.yml", "*.spm", "pytorch_model.bin"]


def found(name, revision=None):
    """The path of a folder or archive; what is none, but is written OWNER/NAME, is downloaded.

    The cache, the token and the address of the Hub are those of `huggingface_hub`: HF_HOME,
    HF_TOKEN, HF_ENDPOINT.

    Args:
        name: A path, or the name of a model on the Hub.
        revision: Branch, tag or commit on the Hub.

    Raises:
        PresetError: If there is neither, or it cannot be downloaded.
    """
    if Path(name).exists():
        if revision:
            raise PresetError(
                f"--revision is for a model on the Hub. Received: {name}, a file here"
            )
        return Path(name)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)):
        raise PresetError(f"there is no folder or archive {name}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise PresetError(
            f"there is no folder or archive {name}; to download a model of this name: "
            "pip install huggingface_hub"
        ) from error
    try:
        return Path(snapshot_download(str(name), revision=revision, allow_patterns=_WANTED))
    except (OSError, ValueError) as error:  # what huggingface_hub raises are these
        why = " ".join(str(error).split())[:300]
        raise PresetError(f"cannot download {name} from the Hugging Face Hub: {why}") from error


@contextlib.contextmanager
def unpacked(path):
    """A context with the folder of a model; what is packed is unpacked into a temporary folder.

    Args:
        path: A folder, a .zip, a .tar or a .tar.gz; the files in a folder can be gzipped.

    Raises:
        PresetError: If the path is something else, or an archive cannot be read.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        try:
            if path.is_dir() and not any(path.glob("*.gz")):
                folder = path
            elif path.is_dir():
                shutil.copytree(path, folder)
            elif zipfile.is_zipfile(path) and path.suffix != ".npz":
                shutil.unpack_archive(path, folder, "zip")
            elif tarfile.is_tarfile(path):
                with tarfile.open(path) as archive:
                    archive.extractall(folder, filter="data")
                    while archive.fileobj.read(1 << 20):  # to its end, where the checksum is
                        pass
            else:
                raise PresetError(f"{path} is neither a folder nor a .zip or .tar.gz of one")
            if folder != path:
                for packed in folder.rglob("*.gz"):
                    with gzip.open(packed) as file, packed.with_suffix("").open("wb") as whole:
                        shutil.copyfileobj(file, whole)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
            raise PresetError(f"cannot unpack {path}: {error}") from error
        inner = [entry for entry in folder.iterdir() if entry.is_dir()]
        alone = len(inner) == 1 and len([*folder.iterdir()]) == 1
        yield inner[0] if alone else folder


def only(folder, *patterns):
    """The only file of a folder that matches the first pattern with a match.

    Raises:
        PresetError: If there is none, or more than one.
    """
    for pattern in patterns:
        matches = sorted(folder.glob(pattern))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(file.name for file in matches)
            raise PresetError(f"expected one file named {pattern}, found {names}")
    there = ", ".join(sorted(file.name for file in folder.iterdir())[:20]) or "nothing"
    raise PresetError(f"expected a file {' or '.join(patterns)}; the folder has {there}")


def read_spms(folder):
    """The bytes of source.spm and target.spm."""
    for file in ("source.bpe", "target.bpe"):
        if (folder / file).exists():
            raise PresetError(
                f"{file}: the model was made with subword-nmt, which is not supported; expected "
                "source.spm and target.spm"
            )
    return tuple(only(folder, f"{side}.spm").read_bytes() for side in ("source", "target"))


def languages_of(folder, name):
    """(source, target): codes such as "pt", as a model's files or its name say; None if not."""
    known, readme = folder / "tokenizer_config.json", folder / "README.md"
    said = read_json(known) if known.exists() else {}
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.exists() else ""
    pair = re.search(r"\b([a-z]{2,3})-([a-z]{2,3})$", name)
    found = []
    for number, side in enumerate(("source", "target"), 1):
        line = re.search(rf"{side} language(?:s|\(s\))?: *([a-z]{{2,3}})\s*$", text, re.MULTILINE)
        code = said.get(f"{side}_lang") or (pair and pair[number]) or (line and line[1])
        found.append(code if isinstance(code, str) else None)
    return tuple(found)


def sentences_of(folder, most=256):
    """The sources of tests: files with lines of source, reference, output, and an empty one."""
    found = []
    for path in sorted((*folder.glob("*.test.txt"), *folder.glob("*.compare"))):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        found += lines[: 4 * most : 4] if not any(lines[3 : 4 * most : 4]) else []
    return tuple(line for line in found if line.strip())[:most]


def read_json(path):
    """The object in a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PresetError(f"cannot read {path.name}: {error}") from error
    if not isinstance(value, dict):
        raise PresetError(f"{path.name}: expected an object")
    return value
