"""The files of a published model, in a folder or an archive."""

import contextlib
import gzip
import json
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from training.marian.published import MarianError


@contextlib.contextmanager
def unpacked(path):
    """A context with the folder of a model; an archive is unpacked into a temporary folder.

    Args:
        path: A folder, a .zip, a .tar or a .tar.gz; the files in a folder can be gzipped.

    Raises:
        MarianError: If the path does not exist or is something else, or an archive cannot be read.
    """
    path = Path(path)
    if not path.exists():
        raise MarianError(f"there is no folder or archive {path}")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        try:
            if path.is_dir():
                zipped = [*path.glob("*.gz")]
                if not zipped:
                    yield path
                    return
                for file in path.iterdir():
                    _place(file, folder)
            elif zipfile.is_zipfile(path) and path.suffix != ".npz":
                _unzip(path, folder)
            elif tarfile.is_tarfile(path):
                _untar(path, folder)
            else:
                raise MarianError(f"{path} is neither a folder nor a .zip or .tar.gz of one")
        except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
            raise MarianError(f"cannot unpack {path}: {error}") from error
        yield folder


def _place(file, folder):
    if file.suffix == ".gz":
        with gzip.open(file) as packed, (folder / file.stem).open("wb") as whole:
            shutil.copyfileobj(packed, whole)
    elif file.is_file():
        (folder / file.name).symlink_to(file.resolve())


def _unzip(path, folder):
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():  # only by its name, so that no path leads out of the folder
                _copy(archive.open(entry), folder / Path(entry.filename).name)


def _untar(path, folder):
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.isfile():
                _copy(archive.extractfile(entry), folder / Path(entry.name).name)


def _copy(source, target):
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file)


def only(folder, *patterns):
    """The only file of a folder that matches the first pattern with a match.

    Raises:
        MarianError: If there is none, or more than one.
    """
    for pattern in patterns:
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(file.name for file in found)
            raise MarianError(f"expected one file named {pattern}, found {names}")
    there = ", ".join(sorted(file.name for file in folder.iterdir())[:20]) or "nothing"
    raise MarianError(f"expected a file {' or '.join(patterns)}; the folder has {there}")


def read_spms(folder):
    """The bytes of source.spm and target.spm."""
    for file in ("source.bpe", "target.bpe"):
        if (folder / file).exists():
            raise MarianError(
                f"{file}: the model was made with subword-nmt, which is not imported; expected "
                "source.spm and target.spm"
            )
    return tuple(only(folder, f"{side}.spm").read_bytes() for side in ("source", "target"))


def read_json(path):
    """The value of a JSON file.

    Raises:
        MarianError: If the file is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MarianError(f"{path.name} is not JSON: {error}") from error


def by_id(ids, name):
    """The pieces of a vocabulary `{piece: id}` by id, a list; empty for ids without a piece.

    Raises:
        MarianError: If an id is negative, or so large that the file cannot be a vocabulary.
    """
    if not ids or min(ids.values()) < 0 or max(ids.values()) > 2 * len(ids) + 1000:
        raise MarianError(f"{name} is not a vocabulary: expected pieces and their ids")
    pieces = [""] * (max(ids.values()) + 1)
    for piece, number in ids.items():
        pieces[number] = piece
    return pieces
