"""Terms with given translations: protected spans that stand in the translation as these.

A term is found where it stands as whole words, with any space between them. One with a capital
letter is found as it is written, another one in any case, as Unicode folds it: `straße` is found in
`STRASSE`. Composed and decomposed letters (NFC, NFD) are the same. Where several begin at the same
place, the longest one counts.
"""

import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfmr.text.protection import protect
from keras_tfmr.text.spans import PRIVATE, SLOTS
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
    """Slots for terms too.

    Args:
        texts: string [batch] with slots for their spans.
        spans: ragged string [batch, (spans)].
        terms: string [batch], those of each text in lines: a term, a tab, its translation.

    Returns:
        Texts and spans, as before; those of terms are their translations, for `parted`.
    """
    equal = tf.debugging.assert_equal(
        tf.shape(terms), tf.shape(texts), "text and terms must have the same batch size"
    )
    with tf.control_dependencies([equal]):  # before what would fail with another message
        terms, translations = _read(terms)
    texts = tf_text.normalize_utf8(valid_utf8(texts), "NFC")  # as the tokenizer composes it, too
    texts = tf.strings.regex_replace(texts, PRIVATE, SLOTS[0])
    texts, protected = protect(_mark(texts), _patterns(terms))
    texts = tf.strings.regex_replace(texts, _MARKED, r"\1")
    flat = _translated(protected, terms, translations)
    before = tf.where(protected.flat_values == SLOTS[0])
    flat = tf.tensor_scatter_nd_update(flat, before, spans.flat_values)
    return texts, protected.with_flat_values(flat)


def parted(texts):
    """Translations with the spans of `with_terms`: a space between a term and another word."""
    for _ in range(2):  # as the second of two borders may be one letter behind the first
        texts = tf.strings.regex_replace(texts, rf"{_LETTER}\p{{Cs}}+{_LETTER}", r"\1 \2")
    return tf.strings.regex_replace(texts, r"\p{Cs}", "")


def _read(terms):
    """Terms and translations of lines, both ragged string [batch, (n)], the longest terms first.

    A line that is none is left out, for an error would be of the whole batch: one without a tab,
    one whose term is blank or has a character that stands for a span, and all that do not end
    within `TERMS_BYTES`.
    """
    terms = tf.where(
        tf.strings.length(terms) > TERMS_BYTES,
        tf.strings.regex_replace(tf.strings.substr(terms, 0, TERMS_BYTES), r"[^\n]*\z", ""),
        terms,
    )
    lines = tf.strings.split(tf.strings.regex_replace(valid_utf8(terms), "\r\n", "\n"), "\n")
    is_term = tf.strings.regex_full_match(lines.flat_values, _LINE)
    lines = tf.ragged.boolean_mask(lines, lines.with_flat_values(is_term))
    count, lines = lines.row_lengths(), lines.to_tensor("")  # [batch, n]
    terms = tf_text.normalize_utf8(tf.strings.regex_replace(lines, r"\t.*", ""), "NFC")
    terms = tf.strings.regex_replace(terms, rf"\A{_SPACE}|{_SPACE}\z", "")
    translations = tf.strings.regex_replace(lines, r"\A[^\t]*\t", "")
    longest = 2 * tf.strings.length(terms) + tf.cast(_is_cased(terms), tf.int32)
    order = tf.argsort(-longest, axis=1, stable=True)
    ordered = (tf.gather(each, order, batch_dims=1) for each in (terms, translations))
    return tuple(tf.RaggedTensor.from_tensor(each, count) for each in ordered)


def _patterns(rows):
    """A pattern for each row of terms, string [batch]; each finds slots, too."""
    terms = rows.flat_values
    escaped = _mark(tf.strings.regex_replace(terms, r"([\\.+*?()|\[\]{}^$])", r"\\\1"))
    escaped = tf.strings.regex_replace(escaped, _SPACE, _SPACE.replace("\\", r"\\"))
    # RE2 knows the other case of a letter, but not that of ß, which is two.
    any_case = tf.strings.regex_replace(escaped, "(?i:ss|ß)", "(?:ss|ß)")
    patterns = tf.where(_is_cased(terms), escaped, tf.strings.join(["(?i:", any_case, ")"]))
    patterns = tf.concat([tf.fill([rows.nrows(), 1], SLOTS[0]), rows.with_flat_values(patterns)], 1)
    return tf.strings.reduce_join(patterns, axis=1, separator="|")


def _translated(found, terms, translations):
    """The translations of the terms that were found, string [found]; others as they are."""
    pieces = tf.strings.regex_replace(found.flat_values, _MARKED, r"\1")
    written, own = _one_line(pieces), _one_line(terms.flat_values)
    own = tf.where(_is_cased(own), _as_written(own), _in_any_case(own))
    keys = [
        _of_its_text(own, terms),
        _of_its_text(_as_written(written), found),
        _of_its_text(_in_any_case(written), found),
    ]
    _, key = tf.unique(tf.concat(keys, 0))  # equal numbers for equal strings
    count = tf.size(own)
    first = tf.math.unsorted_segment_min(tf.range(count), key[:count], tf.size(key))
    best = tf.reduce_min(tf.gather(first, tf.reshape(key[count:], [2, -1])), axis=0)  # [found]
    given = tf.strings.regex_replace(translations.flat_values, "(?s)(.+)", _EDGE + rb"\1" + _EDGE)
    given = tf.gather(tf.concat([given, [""]], 0), tf.minimum(best, count))
    return tf.where(best < count, given, pieces)


def _as_written(texts):
    return tf.strings.join(["=", texts])


def _in_any_case(texts):
    return tf.strings.join(["~", tf_text.case_fold_utf8(texts)])


def _of_its_text(strings, rows):
    """Strings, of which each row of a ragged tensor has some, behind the number of the row."""
    return tf.strings.join([tf.strings.as_string(rows.value_rowids()), strings])


def _mark(texts):
    return tf.strings.regex_replace(texts, _WORD, rf"{_SIGN}\0{_SIGN}")


def _one_line(texts):
    return tf.strings.regex_replace(texts, _SPACE, " ")


def _is_cased(terms):
    return tf.strings.regex_full_match(terms, r"(?s).*\p{Lu}.*")
