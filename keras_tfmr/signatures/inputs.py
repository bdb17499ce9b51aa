"""Inputs of text models, checked alike in process and by the client.

Imports neither Keras nor TensorFlow, because the client must not; what needs them does.
"""

import math
import numbers
import secrets
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_tfmr.text.strings import Text, checked_texts

Inputs = dict[str, list[Any]]  # {name of an input: for each text bytes, a list of them, a number}


def text_of(texts: Iterable[Text]) -> Inputs:
    """The inputs of a call that takes texts only."""
    return {"text": [*map(utf8, checked_texts(texts))]}


def pairs_of(texts: Iterable[Text], references: Iterable[Text]) -> Inputs:
    """The inputs of `score`; a ValueError unless each text has one reference."""
    texts, references = checked_texts(texts), checked_texts(references, "references")
    if len(texts) != len(references):
        raise ValueError(
            f"Each text needs one reference. Received: {len(texts)} texts, "
            f"{len(references)} references"
        )
    return {"text": [*map(utf8, texts)], "reference": [*map(utf8, references)]}


def batches(sizes: Sequence[int], batch_size: int, most: float = math.inf) -> list[slice]:
    """Slices that cover all texts, in batches of bounded size.

    Args:
        sizes: The size of each text.
        batch_size: Largest number of texts in a batch.
        most: Largest sum of their sizes; a larger text is a batch of its own.

    >>> batches([1, 1, 1, 9, 1, 1], batch_size=2, most=5)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 6, None)]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Received: {batch_size}")
    slices, start, total = [], 0, 0
    for end, size in enumerate(sizes):
        total += size
        if end > start and (end - start == batch_size or total > most):
            slices.append(slice(start, end))
            start, total = end, size
    return [*slices, slice(start, len(sizes))] if sizes else []


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


def with_terms(texts: Iterable[Text], terms: Mapping[str, str]) -> Inputs:
    """The inputs of `translate_with_terms`: for each text, those terms that it may have.

    The rows of terms and translations are padded to one length.

    Raises:
        TypeError: If terms are no dict, or one of them or its translation is no str.
        ValueError: If a term is blank.

    >>> with_terms(["O gato", "Gatos pretos"], {"gato": "cat", "preto": "black"})["terms"]
    [[b'gato', b''], [b'gato', b'preto']]
    """
    contents = text_of(texts)["text"]
    for pair in terms.items() if isinstance(terms, Mapping) else [(terms,)]:
        if not all(isinstance(text, str) for text in pair):
            raise TypeError(f"`terms` must be a dict of str. Received: {pair!r:.80}")
        if not pair[0].strip():
            raise ValueError(f"A term must have visible characters. Received: {pair!r:.80}")
    words = {term: _folded(term).split() for term in terms}
    rows = []
    for content in contents:
        known = _folded(content.decode("utf-8", "replace"))
        rows.append([term for term, own in words.items() if all(word in known for word in own)])
    most = max([1, *map(len, rows)])
    rows = [row + [""] * (most - len(row)) for row in rows]
    return {
        "text": contents,
        "terms": [[*map(utf8, row)] for row in rows],
        "translations": [[utf8(terms.get(term, "")) for term in row] for row in rows],
    }


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
    """The inputs of `complete`.

    Raises:
        TypeError: If an option is no number, or not a whole one where that is expected.
        ValueError: If one is out of range.
    """
    prompts = checked_texts(prompts, "prompts")
    _check_number("length", length, numbers.Integral, "a whole number")
    _check_number("top_k", top_k, numbers.Integral, "a whole number")
    _check_number("temperature", temperature, numbers.Real, "a number")
    _check_number("top_p", top_p, numbers.Real, "a number")
    if seed is not None:
        _check_number("seed", seed, numbers.Integral, "a whole number or None")
    if not 1 <= length < 2**31:
        raise ValueError(f"length must be at least 1 and an int32. Received: {length}")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be finite and 0 or more. Received: {temperature}")
    if not 0 <= top_k < 2**31:
        raise ValueError(f"top_k must be 0 or more and an int32. Received: {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1]. Received: {top_p}")
    count = len(prompts)
    return {
        "prompt": [*map(utf8, prompts)],
        "length": [int(length)] * count,
        "temperature": [float(temperature)] * count,
        "top_k": [int(top_k)] * count,
        "top_p": [float(top_p)] * count,
        "seed": seeds_of(seed, count),
    }


def _check_number(name, value, kind, expected):
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name} must be {expected}. Received: {value!r:.80}")


def seeds_of(seed: int | None, count: int) -> list[int]:
    """The seeds of prompts, from that of the first one; None draws it.

    >>> seeds_of(7, 3)
    [7, 8, 9]
    """
    first = secrets.randbits(62) if seed is None else int(seed)
    return [(first + i) % 2**63 for i in range(count)]


def texts_of(examples):
    """The feature `text` of `tf.train.Example` messages, string [batch], for Classify and Regress.

    If an Example has no or more than one text, the whole batch fails; TensorFlow's error names the
    feature.
    """
    import tensorflow as tf

    features = {"text": tf.io.FixedLenFeature([], tf.string)}
    return tf.io.parse_example(tf.ensure_shape(examples, [None]), features)["text"]


def example_of(text: Text) -> bytes:
    """A text as a serialised `tf.train.Example`."""
    import tensorflow as tf

    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[utf8(text)]))
    example = tf.train.Example(features=tf.train.Features(feature={"text": feature}))
    return example.SerializeToString(deterministic=True)
