"""The files of a published model: in a folder, an archive, or a repository of the Hub."""

import contextlib
import gzip
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from training.files import RunError

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
        RunError: If there is neither, or it cannot be downloaded.
    """
    if Path(name).exists():
        if revision:
            raise RunError(f"--revision is for a model on the Hub. Received: {name}, a file here")
        return Path(name)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)):
        raise RunError(f"there is no folder or archive {name}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise RunError(
            f"there is no folder or archive {name}; to download a model of this name: "
            "pip install huggingface_hub"
        ) from error
    try:
        return Path(snapshot_download(str(name), revision=revision, allow_patterns=_WANTED))
    except (OSError, ValueError) as error:  # what huggingface_hub raises are these
        why = " ".join(str(error).split())[:300]
        raise RunError(f"cannot download {name} from the Hugging Face Hub: {why}") from error


@contextlib.contextmanager
def unpacked(path):
    """A context with the folder of a model; what is packed is unpacked into a temporary folder.

    Args:
        path: A folder, a .zip, a .tar or a .tar.gz; the files in a folder can be gzipped.

    Raises:
        RunError: If the path is something else, or an archive cannot be read.
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
                raise RunError(f"{path} is neither a folder nor a .zip or .tar.gz of one")
            if folder != path:
                for packed in folder.rglob("*.gz"):
                    with gzip.open(packed) as file, packed.with_suffix("").open("wb") as whole:
                        shutil.copyfileobj(file, whole)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError) as error:
            raise RunError(f"cannot unpack {path}: {error}") from error
        inner = [entry for entry in folder.iterdir() if entry.is_dir()]
        alone = len(inner) == 1 and len([*folder.iterdir()]) == 1
        yield inner[0] if alone else folder


def only(folder, *patterns):
    """The only file of a folder that matches the first pattern with a match.

    Raises:
        RunError: If there is none, or more than one.
    """
    for pattern in patterns:
        matches = sorted(folder.glob(pattern))
        if len(matches) == 1:
            return matches[0]
        if matches:
            names = ", ".join(file.name for file in matches)
            raise RunError(f"expected one file named {pattern}, found {names}")
    there = ", ".join(sorted(file.name for file in folder.iterdir())[:20]) or "nothing"
    raise RunError(f"expected a file {' or '.join(patterns)}; the folder has {there}")


def read_spms(folder):
    """The bytes of source.spm and target.spm."""
    for file in ("source.bpe", "target.bpe"):
        if (folder / file).exists():
            raise RunError(
                f"{file}: the model was made with subword-nmt, which is not imported; expected "
                "source.spm and target.spm"
            )
    return tuple(only(folder, f"{side}.spm").read_bytes() for side in ("source", "target"))
