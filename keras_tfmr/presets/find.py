"""Where presets are: a folder, an archive, or a repository of the Hugging Face Hub."""

import contextlib
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator

from keras_tfmr.errors import PresetError

HUB = "hf://"
# What a preset needs of a repository, which often holds other frameworks' weights too.
_WANTED = [
    "*.json", "*.safetensors", "*.npz", "*.yml", "*.spm", "*.model", "*.tsv", "*.weights.h5",
    "pytorch_model.bin",
]  # fmt: skip
_NOT_WANTED = ["checkpoints/*", "*last.weights.h5", "saved_model/*"]


@contextlib.contextmanager
def found(preset: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A context with the folder of a preset; an archive is unpacked into a temporary one.

    Args:
        preset: A folder, an archive of one, or `hf://OWNER/NAME`, with `@REVISION` if need be.

    Raises:
        PresetError: If there is none, or it cannot be downloaded or unpacked.
    """
    name = os.fspath(preset)
    path = _downloaded(name) if name.startswith(HUB) else pathlib.Path(name)
    if not path.exists():
        raise PresetError(
            f"there is no folder or archive {name}; a model of the Hugging Face Hub is written "
            f"{HUB}OWNER/NAME"
        )
    with unpacked(path) as folder:
        yield folder


def name_of(preset: str | os.PathLike[str]) -> str:
    """The name of a preset: that of its folder, archive or repository.

    >>> name_of("hf://Helsinki-NLP/opus-mt-pt-en@main"), name_of("models/pt-en.tar.gz")
    ('opus-mt-pt-en', 'pt-en')
    """
    name = os.fspath(preset)
    name = pathlib.PurePath(name.partition("@")[0] if name.startswith(HUB) else name).name
    return re.sub(r"(\.zip|\.tar|\.tar\.gz|\.tgz)$", "", name)


def _downloaded(name):
    """The folder of a repository of the Hub, in the cache of `huggingface_hub`.

    The cache, the token and the address of the Hub are its own: HF_HOME, HF_TOKEN, HF_ENDPOINT. It
    shows the progress and resumes a download that was interrupted.
    """
    parts = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name.removeprefix(HUB))
    if not parts:
        raise PresetError(f"expected {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION. Received: {name}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise PresetError(
            f"{name}: to download models, pip install 'keras_tfmr[hub]' or huggingface-hub"
        ) from error
    try:
        folder = snapshot_download(
            parts[1], revision=parts[2], allow_patterns=_WANTED, ignore_patterns=_NOT_WANTED
        )
    except (OSError, ValueError) as error:  # what huggingface_hub raises are these
        why = " ".join(str(error).split())[:300]
        raise PresetError(
            f"cannot download {name} from the Hugging Face Hub: {why.rstrip('.')}. Without a "
            "network, give a folder or an archive of the model"
        ) from error
    folder = pathlib.Path(folder)
    for path in folder.rglob("*"):
        _check(path)
    return folder


def _check(path):
    """Compares a large file of the cache, which has its SHA-256 as its name, with it."""
    blob = path.resolve()
    if path.is_file() and re.fullmatch("[0-9a-f]{64}", blob.name):
        with blob.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        if checksum != blob.name:
            raise PresetError(f"{path.name} is damaged: delete {blob}, and download it again")


@contextlib.contextmanager
def unpacked(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A context with the folder of a preset; what is packed is unpacked into a temporary folder.

    Args:
        path: A folder, a .zip, a .tar or a .tar.gz; the files in a folder can be gzipped.

    Raises:
        PresetError: If the path is something else, or an archive cannot be read.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "model"
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
