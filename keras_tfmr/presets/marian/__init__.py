"""Published models of Marian, such as those of OPUS-MT: what a translator needs is read from them.

They have two forms. A *Marian release* is `*.npz`, `decoder.yml`, and `*vocab.yml` with
`source.spm` and `target.spm`, or SentencePiece models as vocabularies. A *transformers folder* is
what transformers saves a MarianMTModel and its tokenizer into: `config.json`, `model.safetensors`,
`vocab.json`, `source.spm`, `target.spm`. `writing.write_marian` writes both.
"""

import dataclasses
import os
import pathlib
from typing import Any

from keras_tfmr.errors import PresetError

RELEASE, TRANSFORMERS = "Marian release", "transformers folder"


@dataclasses.dataclass(frozen=True)
class Published:
    """A published model: what a `Translator` needs, and what its files say of it.

    Fields:
        name, form: Its name, and that of its form, as `recognise` says it.
        model: A `TranslationModel`.
        source_tokenizer, target_tokenizer: A `MarianTokenizer` each. The first one's
            `target_languages` are those that the model lets choose, by a tag, and
            `target_language` is the one of texts without a tag.
        decoding: A `DecodingConfig`.
        source_language, target_language: Codes such as "pt" or "por"; None if the files do not say.
        texts: Sentences in the source language, from the tests that some models bring: list of str.
        notes: Lines about options of the published files that have no effect here.
    """

    name: str
    form: str
    model: Any
    source_tokenizer: Any
    target_tokenizer: Any
    decoding: Any
    source_language: str | None = None
    target_language: str | None = None
    texts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def recognise(folder: str | os.PathLike[str]) -> str | None:
    """The form of a published model: "Marian release", "transformers folder", or None for others.

    Only the names of the files are looked at, and whether a `config.json` has a `model_type`; that
    of a run folder has none.

    >>> recognise("keras_tfmr") is None
    True
    """
    folder = pathlib.Path(folder)
    config = folder / "config.json"
    if config.is_file():
        named = b'"model_type"' in config.read_bytes()
        return TRANSFORMERS if named else None
    is_release = (folder / "decoder.yml").is_file() or any(folder.glob("*.npz"))
    return RELEASE if is_release else None


def read(
    folder: str | os.PathLike[str],
    *,
    weights: bool = True,
    language: str | None = None,
    name: str | None = None,
) -> Published:
    """Reads a published model, in either form.

    Whether the model can be read is known from its options, before any weight is read.

    Args:
        folder: Its folder, unpacked.
        weights: Whether to read the weights; otherwise they are random.
        language: For a model with several target languages, that of texts without a tag, such as
            "por".
        name: The model's name; that of the folder by default.

    Raises:
        PresetError: If a file is missing or cannot be read, the model has another architecture, or
            it does not have the language.
    """
    from keras_tfmr.models import TransformerConfig, TranslationModel
    from keras_tfmr.presets.marian import release, transformers_folder
    from keras_tfmr.presets.marian.published import sentences_of, stated_languages
    from keras_tfmr.presets.marian.weights import assign

    folder = pathlib.Path(folder)
    form = recognise(folder)
    if form is None:
        raise PresetError(
            f"{folder} holds no published model: expected config.json of transformers, or "
            "decoder.yml and *.npz of Marian"
        )
    described = (release if form == RELEASE else transformers_folder).describe(folder)
    name = name or described.name or folder.name
    vocabularies = dict(zip(("source", "target"), described.vocabularies, strict=True))
    sizes = {f"{side}_vocab": len(vocabulary.order) for side, vocabulary in vocabularies.items()}
    try:
        config = TransformerConfig(**sizes, **described.config)
    except ValueError as error:
        raise PresetError(f"{name}: {error}") from error
    source, target = described.tokenizers(language)
    model = TranslationModel(config)
    if weights:
        assign(model, described.arrays(config), vocabularies, described.banned)
    source_language, target_language = stated_languages(folder)
    return Published(
        name=name,
        form=form,
        model=model,
        source_tokenizer=source,
        target_tokenizer=target,
        decoding=described.decoding,
        source_language=source_language,
        target_language=source.target_language or target_language,
        texts=sentences_of(folder),
        notes=described.notes,
    )
