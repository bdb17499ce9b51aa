"""Terms with given translations: protected spans that stand in the translation as these.

A term is found where it stands as whole words, with any space between them. One with a capital
letter is found as it is written, another one in any case, as Unicode folds it: `straße` is found in
`STRASSE`. Composed and decomposed letters (NFC, NFD) are the same. Where several begin at the same
place, the longest one counts.
"""

from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfmr.text.pieces import chosen, join, split
from keras_tfmr.text.protection import MARK, MARKED, with_slots
from keras_tfmr.text.spans import SLOTS
from keras_tfmr.text.strings import TERMS_BYTES
from keras_tfmr.text.tokenizer import valid_utf8

# On both sides of a word, a code point that Unicode guarantees never to assign. RE2's \b knows the
# words of ASCII only.
_WORD, _SIGN = r"[\pL\pN\pM_]+", "\ufdd0"
_MARKED = rf"{_SIGN}({_WORD}){_SIGN}"

_SPACE = r"[\s\pZ]+"

# A term, which has a visible character and none that stands for a span, a tab, a translation.
_IN_TERM = r"[^\t\x{E000}-\x{EFFF}]*"
_LINE = rf"{_IN_TERM}[^\s\pZ\x{{E000}}-\x{{EFFF}}]{_IN_TERM}\t.*"

# On both sides of a term's translation, a surrogate: no text in UTF-8 has one.
_EDGE = b"\xed\xa0\x80"
# A character of words that spaces part.
_LETTER = r"([^\PL\p{Han}\p{Hiragana}\p{Katakana}\p{Khmer}\p{Lao}\p{Myanmar}\p{Thai}]|[\pN_])"


def with_terms(texts, spans, terms):
    """Slots for spans and terms.

    Args:
        texts: string [batch], with U+E000 for each span.
        spans: string [spans], those of all texts in order.
        terms: string [batch], those of each text in lines: a term, a tab, its translation.

    Returns:
        The `Slotted`. What stands for the slot of a term is its translation, for `parted`.
    """
    equal = tf.debugging.assert_equal(
        tf.shape(terms), tf.shape(texts), "text and terms must have the same batch size"
    )
    with tf.control_dependencies([equal]):  # before what would fail with another message
        terms = _read(terms)
    texts = tf_text.normalize_utf8(valid_utf8(texts), "NFC")  # as the tokenizer composes it, too
    count = tf.size(texts, tf.int64)
    marked = tf.map_fn(
        lambda each: tf.strings.regex_replace(*each, MARKED),
        (_mark(texts), _patterns(terms, count)),
        fn_output_signature=tf.TensorSpec([], tf.string),
    )
    pieces = split(marked, MARK)
    values = tf.strings.regex_replace(pieces.values, _MARKED, r"\1")
    is_found = pieces.places % 2 == 1
    found = _translated(*chosen(is_found, values, pieces.rows), terms)
    translated = tf.tensor_scatter_nd_update(values, tf.where(is_found), found)
    is_span = tf.where(is_found & (values == SLOTS[0]))
    values, translated = (
        tf.tensor_scatter_nd_update(each, is_span, spans) for each in (values, translated)
    )
    return with_slots(pieces._replace(values=values), translated, count)


def parted(texts):
    """Translations with the spans of `with_terms`: a space between a term and another word."""
    for _ in range(2):  # as the second of two borders may be one letter behind the first
        texts = tf.strings.regex_replace(texts, rf"{_LETTER}\p{{Cs}}+{_LETTER}", r"\1 \2")
    return tf.strings.regex_replace(texts, r"\p{Cs}", "")


class _Terms(NamedTuple):
    """The terms of a batch of texts, the longest of a text first.

    Fields:
        terms, translations: string [terms].
        rows: int64 [terms], ascending: the text of each.
    """

    terms: tf.Tensor
    translations: tf.Tensor
    rows: tf.Tensor


def _read(terms):
    """The `_Terms` of lines.

    A line that is none is left out, for an error would be of the whole batch: one without a tab,
    one whose term is blank or has a character that stands for a span, and all that do not end
    within `TERMS_BYTES`.
    """
    terms = tf.where(
        tf.strings.length(terms) > TERMS_BYTES,
        tf.strings.regex_replace(tf.strings.substr(terms, 0, TERMS_BYTES), r"[^\n]*\z", ""),
        terms,
    )
    lines = split(tf.strings.regex_replace(valid_utf8(terms), "\r\n", "\n"), "\n")
    is_term = tf.strings.regex_full_match(lines.values, _LINE)
    lines, rows = chosen(is_term, lines.values, lines.rows)
    terms = tf_text.normalize_utf8(tf.strings.regex_replace(lines, r"\t.*", ""), "NFC")
    terms = tf.strings.regex_replace(terms, rf"\A{_SPACE}|{_SPACE}\z", "")
    translations = tf.strings.regex_replace(lines, r"\A[^\t]*\t", "")
    longest = 2 * tf.strings.length(terms) + tf.cast(_is_cased(terms), tf.int32)
    order = tf.argsort(rows * 2**32 - tf.cast(longest, tf.int64), stable=True)
    return _Terms(*(tf.gather(each, order) for each in (terms, translations, rows)))


def _patterns(terms, count):
    """A pattern for the terms of each text, in a group, string [count]; each finds spans, too."""
    escaped = _mark(tf.strings.regex_replace(terms.terms, r"([\\.+*?()|\[\]{}^$])", r"\\\1"))
    escaped = tf.strings.regex_replace(escaped, _SPACE, _SPACE.replace("\\", r"\\"))
    # RE2 knows the other case of a letter, but not that of ß, which is two.
    any_case = tf.strings.regex_replace(escaped, "(?i:ss|ß)", "(?:ss|ß)")
    patterns = tf.where(_is_cased(terms.terms), "|" + escaped, "|(?i:" + any_case + ")")
    return f"({SLOTS[0]}" + join(patterns, terms.rows, count) + ")"


def _translated(found, rows, terms):
    """The translations of the terms that were found, string [found]; others as they are.

    `rows` int64 [found] are their texts.
    """
    written, own = _one_line(found), _one_line(terms.terms)
    own = tf.where(_is_cased(own), _as_written(own), _in_any_case(own))
    keys = [
        _of_its_text(own, terms.rows),
        _of_its_text(_as_written(written), rows),
        _of_its_text(_in_any_case(written), rows),
    ]
    _, key = tf.unique(tf.concat(keys, 0))  # equal numbers for equal strings
    count = tf.size(own)
    first = tf.math.unsorted_segment_min(tf.range(count), key[:count], tf.size(key))
    best = tf.reduce_min(tf.gather(first, tf.reshape(key[count:], [2, -1])), axis=0)  # [found]
    given = tf.strings.regex_replace(terms.translations, "(?s)(.+)", _EDGE + rb"\1" + _EDGE)
    given = tf.gather(tf.concat([given, [""]], 0), tf.minimum(best, count))
    return tf.where(best < count, given, found)


def _as_written(texts):
    return "=" + texts


def _in_any_case(texts):
    return "~" + tf_text.case_fold_utf8(texts)


def _of_its_text(strings, rows):
    """Strings behind the numbers of their texts."""
    return tf.strings.as_string(rows) + strings


def _mark(texts):
    return tf.strings.regex_replace(texts, _WORD, rf"{_SIGN}\0{_SIGN}")


def _one_line(texts):
    return tf.strings.regex_replace(texts, _SPACE, " ")


def _is_cased(terms):
    return tf.strings.regex_full_match(terms, r"(?s).*\p{Lu}.*")
