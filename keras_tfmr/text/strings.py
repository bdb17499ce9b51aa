"""Texts and terms as callers give them: needs neither TensorFlow nor Keras."""

import pathlib
from collections.abc import Iterable

Text = str | bytes

# The most that the terms of a text take, translations included: RE2, which finds them, refuses a
# pattern for some 50 KiB of them, and that error would be of the whole batch.
TERMS_BYTES = 8192


def checked_texts(texts: Iterable[Text], name: str = "texts") -> list[Text]:
    """The texts as a list; a TypeError for a single str, which would be split into letters."""
    if isinstance(texts, str | bytes):
        raise TypeError(f"`{name}` must be a list of str. Received: {texts!r:.60}")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str | bytes):
            raise TypeError(
                f"`{name}` must be a list of str. Received an element of {type(text).__name__}"
            )
    return texts


def read_lines(path: pathlib.Path) -> list[str]:
    """The lines of a text file; a ValueError that names the file if it is no text."""
    try:
        return path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from None


def read_terms(path: pathlib.Path) -> dict[str, str]:
    """The terms in a file of lines TERM<TAB>TRANSLATION; a ValueError for a line that is none."""
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        term, tab, translation = line.partition("\t")
        if not tab or not term.strip() or terms.get(term, translation) != translation:
            raise ValueError(
                f"{path}, line {number}: expected TERM, a tab, TRANSLATION, each term with one "
                f"translation only. Received: {line!r:.80}"
            )
        terms[term] = translation
    return terms
