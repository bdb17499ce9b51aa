"""Finds presets: a folder, or a repository of the Hugging Face Hub."""

import os
import pathlib
import re

from keras_tfmr.errors import PresetError

HUB = "hf://"
# The files of a preset; a repository often holds other frameworks' weights too.
_WANTED = ["*.json", "*.safetensors", "*.spm", "*.model", "*.txt", "*.weights.h5"]
_NOT_WANTED = ["checkpoints/*", "*last.weights.h5", "saved_model/*"]


def find(preset: str | os.PathLike[str]) -> pathlib.Path:
    """The folder of a preset.

    Args:
        preset: A folder, or `hf://OWNER/NAME`, optionally with `@REVISION`.

    Raises:
        PresetError: If there is none, or it cannot be downloaded.
    """
    name = os.fspath(preset)
    path = _downloaded(name) if name.startswith(HUB) else pathlib.Path(name)
    if not path.is_dir():
        raise PresetError(
            f"there is no folder {name}; a model of the Hugging Face Hub is written {HUB}OWNER/NAME"
        )
    return path


def name_of(preset: str | os.PathLike[str]) -> str:
    """The name of a preset: that of its folder or repository.

    >>> name_of("hf://Helsinki-NLP/opus-mt-pt-en@main"), name_of("models/pt-en")
    ('opus-mt-pt-en', 'pt-en')
    """
    name = os.fspath(preset)
    return pathlib.PurePath(name.partition("@")[0] if name.startswith(HUB) else name).name


def _downloaded(name):
    """The folder of a repository of the Hub, in the cache of `huggingface_hub`.

    The cache, the token and the address of the Hub are its own: HF_HOME, HF_TOKEN, HF_ENDPOINT. It
    shows the progress and resumes a download that was interrupted.
    """
    parts = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name.removeprefix(HUB))
    if not parts:
        raise PresetError(f"expected {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION. Received: {name}")
    try:
        from huggingface_hub import snapshot_download  # an extra: `hub`
    except ImportError as error:
        raise PresetError(
            f"{name}: to download models, pip install 'keras_tfmr[hub]' or huggingface-hub"
        ) from error
    try:
        folder = snapshot_download(
            parts[1], revision=parts[2], allow_patterns=_WANTED, ignore_patterns=_NOT_WANTED
        )
    except (OSError, ValueError) as error:  # those of huggingface_hub
        why = " ".join(str(error).split())[:300]
        raise PresetError(
            f"cannot download {name} from the Hugging Face Hub: {why.rstrip('.')}. Without a "
            "network, give a folder of the model"
        ) from error
    return pathlib.Path(folder)
