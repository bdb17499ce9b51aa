"""Terms with given translations: protected spans that stand in the translation as these.

A term is found where it stands as whole words. One with a capital letter is found as it is written,
another one in any case. Where several begin at the same place, the longest one counts.
"""

import tensorflow as tf

from keras_tfmr.text.protection import protect
from keras_tfmr.text.spans import PRIVATE, SLOTS
from keras_tfmr.text.subwords import valid_utf8

# On both sides of a word, a code point that Unicode guarantees never to assign. RE2's \b knows the
# words of ASCII only.
_WORD, _SIGN = r"[\pL\pN\pM_]+", "\ufdd0"
_MARKED = rf"{_SIGN}({_WORD}){_SIGN}"


def with_terms(texts, spans, terms, translations):
    """Slots for terms too.

    Args:
        texts: string [batch] with slots for their spans.
        spans: ragged string [batch, (spans)].
        terms: string [batch, n], those of each text, padded with empty strings.
        translations: string [batch, n].

    Returns:
        Texts and spans, as before; those of terms are their translations.
    """
    for each in terms, translations:
        tf.debugging.assert_equal(
            tf.shape(each),
            tf.stack([tf.size(texts), tf.shape(terms)[1]]),
            "text, terms and translations must have the same batch size, and each term a "
            "translation",
        )
    column = [[0, 0], [0, 1]]  # at least one, which is empty
    terms = tf.pad(tf.strings.strip(valid_utf8(terms)), column)
    translations = tf.pad(valid_utf8(translations), column)
    order = tf.argsort(-tf.strings.length(terms), axis=1, stable=True)
    terms = tf.gather(terms, order, batch_dims=1)
    translations = tf.gather(translations, order, batch_dims=1)
    texts = tf.strings.regex_replace(texts, PRIVATE, SLOTS[0])
    texts, found = protect(_mark(texts), _patterns(terms))
    texts = tf.strings.regex_replace(texts, _MARKED, r"\1")
    flat = _translated(found, terms, translations)
    before = tf.where(found.flat_values == SLOTS[0])
    flat = tf.tensor_scatter_nd_update(flat, before, spans.flat_values)
    return texts, found.with_flat_values(flat)


def _patterns(terms):
    """A pattern for each row of terms, string [batch]; each finds slots, too."""
    escaped = _mark(tf.strings.regex_replace(terms, r"([\\.+*?()|\[\]{}^$])", r"\\\1"))
    escaped = tf.strings.regex_replace(escaped, r"\s+", r"\\s+")
    patterns = tf.where(_is_cased(terms), escaped, tf.strings.join(["(?i:", escaped, ")"]))
    patterns = tf.ragged.boolean_mask(patterns, terms != "")
    patterns = tf.concat([tf.fill([patterns.nrows(), 1], SLOTS[0]), patterns], 1)
    return tf.strings.reduce_join(patterns, axis=1, separator="|")


def _translated(found, terms, translations):
    """The translations of the terms that were found, string [found]; others as they are."""
    rows = found.value_rowids()
    pieces = tf.strings.regex_replace(found.flat_values, _MARKED, r"\1")
    as_written, own = _one_line(pieces)[:, None], _one_line(tf.gather(terms, rows))  # [found, n]
    lower = tf.strings.lower(as_written, "utf-8") == tf.strings.lower(own, "utf-8")
    same = 2 * tf.cast(as_written == own, tf.int32)
    same += tf.cast(lower & ~tf.gather(_is_cased(terms), rows), tf.int32)
    best = tf.gather(tf.gather(translations, rows), tf.argmax(same, axis=1), batch_dims=1)
    return tf.where(tf.reduce_any(same > 0, axis=1), best, pieces)


def _mark(texts):
    return tf.strings.regex_replace(texts, _WORD, rf"{_SIGN}\0{_SIGN}")


def _one_line(texts):
    return tf.strings.regex_replace(texts, r"\s+", " ")


def _is_cased(terms):
    return tf.strings.regex_full_match(terms, r"(?s).*\p{Lu}.*")
