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
from keras_tfmr.text.tokenizer import valid_utf8

# On both sides of a word, a code point that Unicode guarantees never to assign. RE2's \b knows the
# words of ASCII only.
_WORD, _SIGN = r"[\pL\pN\pM_]+", "\ufdd0"
_MARKED = rf"{_SIGN}({_WORD}){_SIGN}"

_SPACE = r"[\s\pZ]+"

# On both sides of a term's translation, a surrogate: no text in UTF-8 has one.
_EDGE = b"\xed\xa0\x80"
# A character of words that spaces part.
_LETTER = r"([^\PL\p{Han}\p{Hiragana}\p{Katakana}\p{Khmer}\p{Lao}\p{Myanmar}\p{Thai}]|[\pN_])"


def with_terms(texts, spans, terms, translations):
    """Slots for terms too.

    Args:
        texts: string [batch] with slots for their spans.
        spans: ragged string [batch, (spans)].
        terms: string [batch, n], those of each text, padded with empty strings.
        translations: string [batch, n].

    Returns:
        Texts and spans, as before; those of terms are their translations, for `parted`.
    """
    checks = [
        tf.debugging.assert_equal(
            tf.shape(each),
            tf.stack([tf.size(texts), tf.shape(terms)[1]]),
            "text, terms and translations must have the same batch size, and each term a "
            "translation",
        )
        for each in (terms, translations)
    ]
    with tf.control_dependencies(checks):  # before what would fail with another message
        terms, translations = tf.identity(terms), tf.identity(translations)
    column = [[0, 0], [0, 1]]  # at least one, which is empty
    # As the tokenizer composes them, too.
    texts, terms = (tf_text.normalize_utf8(valid_utf8(given), "NFC") for given in (texts, terms))
    terms = tf.pad(tf.strings.regex_replace(terms, rf"\A{_SPACE}|{_SPACE}\z", ""), column)
    translations = tf.pad(valid_utf8(translations), column)
    longest = 2 * tf.strings.length(terms) + tf.cast(_is_cased(terms), tf.int32)
    order = tf.argsort(-longest, axis=1, stable=True)
    terms, translations = (tf.gather(each, order, batch_dims=1) for each in (terms, translations))
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


def _patterns(terms):
    """A pattern for each row of terms, string [batch]; each finds slots, too."""
    escaped = _mark(tf.strings.regex_replace(terms, r"([\\.+*?()|\[\]{}^$])", r"\\\1"))
    escaped = tf.strings.regex_replace(escaped, _SPACE, _SPACE.replace("\\", r"\\"))
    # RE2 knows the other case of a letter, but not that of ß, which is two.
    any_case = tf.strings.regex_replace(escaped, "(?i:ss|ß)", "(?:ss|ß)")
    patterns = tf.where(_is_cased(terms), escaped, tf.strings.join(["(?i:", any_case, ")"]))
    patterns = tf.ragged.boolean_mask(patterns, terms != "")
    patterns = tf.concat([tf.fill([patterns.nrows(), 1], SLOTS[0]), patterns], 1)
    return tf.strings.reduce_join(patterns, axis=1, separator="|")


def _translated(found, terms, translations):
    """The translations of the terms that were found, string [found]; others as they are."""
    rows = found.value_rowids()
    pieces = tf.strings.regex_replace(found.flat_values, _MARKED, r"\1")
    as_written, own = _one_line(pieces)[:, None], tf.gather(_one_line(terms), rows)  # [found, n]
    any_case = tf_text.case_fold_utf8(as_written) == tf_text.case_fold_utf8(own)
    same = tf.where(tf.gather(_is_cased(terms), rows), as_written == own, any_case)
    best = tf.gather(tf.gather(translations, rows), tf.argmax(same, axis=1), batch_dims=1)
    best = tf.strings.regex_replace(best, "(?s)(.+)", _EDGE + rb"\1" + _EDGE)
    return tf.where(tf.reduce_any(same, axis=1), best, pieces)


def _mark(texts):
    return tf.strings.regex_replace(texts, _WORD, rf"{_SIGN}\0{_SIGN}")


def _one_line(texts):
    return tf.strings.regex_replace(texts, _SPACE, " ")


def _is_cased(terms):
    return tf.strings.regex_full_match(terms, r"(?s).*\p{Lu}.*")
