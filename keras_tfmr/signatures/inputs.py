"""Inputs of text models, checked alike in process and by the client."""

import numbers
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from keras_tfmr.text.spans import PRIVATE
from keras_tfmr.text.strings import TERMS_BYTES, Text, checked_texts

Inputs = dict[str, list[Any]]  # {name of an input: bytes or a number for each text}


def utf8(text: Text) -> bytes:
    """The bytes of a text; bytes that Python read as surrogate escapes are restored.

    >>> utf8("olá"), utf8(b"ol\\xe1"), utf8("ol\\udce1")
    (b'ol\\xc3\\xa1', b'ol\\xe1', b'ol\\xe1')
    """
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a surrogate pair: invalid UTF-8, which the model replaces
        return text.encode("utf-8", "surrogatepass")


def text_of(texts: Iterable[Text]) -> Inputs:
    """The inputs of a call that takes texts only."""
    return {"text": [utf8(text) for text in checked_texts(texts)]}


def pairs_of(texts: Iterable[Text], references: Iterable[Text]) -> Inputs:
    """The inputs of `score`; a ValueError unless each text has one reference."""
    texts, references = checked_texts(texts), checked_texts(references, "references")
    if len(texts) != len(references):
        raise ValueError(
            f"Each text needs one reference. Received: {len(texts)} texts, "
            f"{len(references)} references"
        )
    return {
        "text": [utf8(text) for text in texts],
        "reference": [utf8(reference) for reference in references],
    }


def terms_of(texts: Iterable[Text], terms: Mapping[str, str]) -> Inputs:
    """The inputs of `translate_with_terms`: for each text, lines of those terms that it may have.

    Raises:
        TypeError: If terms are no dict, or one of them or its translation is no str.
        ValueError: If a term is blank, or a line cannot hold it; or if those that a text may have
            exceed `TERMS_BYTES`.

    >>> terms_of(["O gato", "Gatos pretos"], {"gato": "cat", "preto": "black"})["terms"]
    [b'gato\\tcat', b'gato\\tcat\\npreto\\tblack']
    """
    _check_terms(terms)
    contents = text_of(texts)["text"]
    words = {term: _folded(term).split() for term in terms}
    lines = {term: utf8(f"{term}\t{translation}") for term, translation in terms.items()}
    rows = []
    for content in contents:
        known = _folded(content.decode("utf-8", "replace"))
        may = [term for term, own in words.items() if all(word in known for word in own)]
        rows.append(b"\n".join(lines[term] for term in may))
        if len(rows[-1]) > TERMS_BYTES:
            raise ValueError(
                f"The terms that a text may have must take at most {TERMS_BYTES} bytes, "
                f"translations included. Received: {len(may)} terms of {len(rows[-1])} bytes for "
                f"{known!r:.80}"
            )
    return {"text": contents, "terms": rows}


def _check_terms(terms):
    """Raises an error for terms that a line cannot hold."""
    if not isinstance(terms, Mapping):
        raise TypeError(f"`terms` must be a dict of str. Received: {terms!r:.80}")
    for pair in terms.items():
        if not all(isinstance(text, str) for text in pair):
            raise TypeError(f"`terms` must be a dict of str. Received: {pair!r:.80}")
        if not pair[0].strip():
            raise ValueError(f"A term must have visible characters. Received: {pair!r:.80}")
        if re.search(rf"[\t\r\n]|{PRIVATE}", pair[0]) or re.search(r"[\r\n]", pair[1]):
            raise ValueError(
                "A term must be without tabs, line breaks and characters from U+E000 to U+EFFF, "
                f"its translation without line breaks. Received: {pair!r:.80}"
            )


def _folded(text):
    """A text in which the search for terms sees no difference of case and composition."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def sampling_of(
    prompts: Iterable[Text],
    length: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int | None,
) -> Inputs:
    """The inputs of `complete`; a TypeError or ValueError for an option that it cannot have."""
    prompts = [utf8(prompt) for prompt in checked_texts(prompts, "prompts")]
    if seed is None:
        seed = secrets.randbits(62)
    for name, value in (("length", length), ("top_k", top_k), ("seed", seed)):
        if not isinstance(value, numbers.Integral):
            raise TypeError(f"{name} must be a whole number. Received: {value!r:.80}")
    for name, number in (("temperature", temperature), ("top_p", top_p)):
        if not isinstance(number, numbers.Real):
            raise TypeError(f"{name} must be a number. Received: {number!r:.80}")
    _check_range("length", length, 1, 2**31 - 1)
    _check_range("temperature", temperature, 0.0, 1e30)
    _check_range("top_k", top_k, 0, 2**31 - 1)
    _check_range("top_p", top_p, 0.0, 1.0)
    _check_range("seed", seed, -(2**63), 2**63 - 1)
    count = len(prompts)
    return {
        "prompt": prompts,
        "length": [length] * count,
        "temperature": [float(temperature)] * count,
        "top_k": [top_k] * count,
        "top_p": [float(top_p)] * count,
        "seed": [(seed + i) % 2**63 for i in range(count)],
    }


def _check_range(name, value, least, most):
    if not least <= value <= most:
        raise ValueError(f"{name} must be from {least} to {most}. Received: {value}")
