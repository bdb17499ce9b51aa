"""Shortlists of a translator: from its run's pairs, from a file, or from texts in memory."""

import os
import pathlib
from collections.abc import Iterable

from keras_tfmr.errors import PresetError
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.shortlist import Shortlist
from keras_tfmr.shortlist.learn import learned
from keras_tfmr.signatures.inputs import pairs_of
from keras_tfmr.text.strings import Text, checked_texts, read_lines
from keras_tfmr.text_models.translator import Translator


def learn_shortlist(
    translator: Translator, texts: Iterable[Text], translations: Iterable[Text] | None = None
) -> Shortlist:
    """The `Shortlist` of a translator, from texts and their translations.

    Args:
        translator: The `Translator`.
        texts: Texts like those of real requests, ten thousand or more.
        translations: A translation of each; by default those of the translator itself, which it
            makes greedily.

    Raises:
        ValueError: If there are no texts, or another number of translations.

    >>> from keras_tfmr import SubwordTokenizer, Transformer, TransformerConfig
    >>> pairs = ["o gato preto", "um gato"], ["the black cat", "a cat"]
    >>> tokenizer = SubwordTokenizer.learn([*pairs[0], *pairs[1]] * 9, vocab_size=300)
    >>> size = tokenizer.vocab_size
    >>> config = TransformerConfig.preset("tiny", source_vocab=size, target_vocab=size)
    >>> shortlist = learn_shortlist(Translator(Transformer(config), tokenizer), *pairs)
    >>> len(shortlist.table) == size
    True
    """
    texts = translator.source_tokenizer.tagged(checked_texts(texts))
    if translations is None:
        greedy = translator.replace(num_beams=1, num_return_sequences=1).for_decoding()
        translations = greedy.translate(texts)
    pairs = pairs_of(texts, translations)
    source, target = ([text.decode("utf-8", "replace") for text in side] for side in pairs.values())
    of_source, of_target = translator.sides()
    return learned(
        of_source.encode_lines(source), of_target.encode_lines(target), of_source, of_target
    )


def shortlist_for(
    translator: Translator, preset: str | os.PathLike[str], file: str | os.PathLike[str]
) -> Shortlist:
    """The `Shortlist` of a translator, from a file; or from the pairs that its run learned from.

    Args:
        translator: The `Translator`.
        preset: The preset that it is of.
        file: A file of lines TEXT<TAB>TRANSLATION, or of texts, which the translator translates
            first; "" for the pairs of the run.

    Raises:
        ValueError: If the preset is not of a translator or has no pairs, or the file is no such
            file.
    """
    if not isinstance(translator, Translator):
        raise PresetError(f"A shortlist is for a translator. Received: {preset}")
    if file:
        return learn_shortlist(translator, *columns_of(pathlib.Path(file)))
    folder = PresetFolder(preset)
    if not folder.encoded.is_dir():
        raise PresetError(
            f"{preset} has no pairs that a shortlist could be learned from: give a file of pairs, "
            "or of texts"
        )
    source, target = folder.pairs()
    return learned(source, target, *translator.sides())


def columns_of(file: pathlib.Path) -> list[list[str]]:
    """The columns of a file of texts, or of texts and translations behind a tab."""
    rows = [line.split("\t") for line in read_lines(file) if line.strip()]
    if len(widths := {len(row) for row in rows}) != 1 or not widths <= {1, 2}:
        raise ValueError(
            f"{file} must have lines of a text, or all of a text, a tab and its translation. "
            f"Received: {len(rows):,} lines, of {sorted(widths)} columns"
        )
    return [list(column) for column in zip(*rows, strict=True)]
