"""Texts of any length in the graph: their sentences are translated, what is between them stays."""

import tensorflow as tf

from keras_tfmr.text.pieces import join, table
from keras_tfmr.text.protection import Slotted
from keras_tfmr.text_models.text_model import BATCH


def translated_document(text, translate, splitter, protection, tokenizer, max_length):
    """The outputs of the signature `translate_document`: see `Translator`.

    Args:
        text: string [batch].
        translate: A function from strings [sentences] with slots to their translations, string, and
            whether they were cut, bool.
        splitter: The `SentenceSplitter` that finds the sentences.
        protection: The translator's `Protection`.
        tokenizer: The tokenizer of the source.
        max_length: Maximum number of tokens of a sentence.
    """
    text, spans = protection.taken_out(text)  # a span is one token
    pieces, rows, real = splitter.pieces(text, tokenizer, max_length)
    pieces, slotted = protection.put_back(pieces, spans)
    places = tf.where(real)  # [sentences, 1]
    lengths = tf.strings.length(tf.gather_nd(slotted.texts, places))
    places = tf.gather(places, tf.argsort(lengths))  # so that a batch's sentences are alike
    sentences = Slotted(*(tf.gather_nd(field, places) for field in slotted))
    translations, truncated = _in_batches(translate, sentences.texts)
    truncated |= sentences.crowded
    translated = tf.tensor_scatter_nd_update(pieces, places, sentences.restored(translations))
    count, own = tf.size(text, tf.int64), tf.gather_nd(rows, places)
    return {
        "translation": join(translated, rows, count),
        "sentences": tf.math.unsorted_segment_sum(tf.ones_like(own, tf.int32), own, count),
        "truncated": tf.math.unsorted_segment_sum(tf.cast(truncated, tf.int32), own, count) > 0,
        "source_pieces": table(pieces, rows, count),
        "target_pieces": table(translated, rows, count),
    }


def _in_batches(translate, texts):
    """Translations string and truncated bool [texts], in the memory that one batch takes."""

    def next_batch(*done):
        first = tf.size(done[0])
        new = translate(texts[first : first + BATCH])
        return [tf.concat(pair, axis=0) for pair in zip(done, new, strict=True)]

    return tf.while_loop(
        lambda translations, _: tf.size(translations) < tf.size(texts),
        next_batch,
        [tf.constant([], tf.string), tf.constant([], tf.bool)],
        shape_invariants=[tf.TensorShape([None])] * 2,
    )
