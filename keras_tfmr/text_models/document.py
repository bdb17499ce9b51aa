"""Texts of any length in the graph: their sentences are translated, what is between them stays."""

import tensorflow as tf

from keras_tfmr.text.protection import restore
from keras_tfmr.text.spans import SLOTS
from keras_tfmr.text_models.text_model import BATCH


def translated_document(text, translate, protection, tokenizer, max_length):
    """The outputs of the signature `translate_document`: see `Translator`.

    Args:
        text: string [batch].
        translate: A concrete function from strings [sentences] with slots to a dict of their
            `translation` string and `truncated` bool.
        protection: The translator's `Protection`, whose splitter finds the sentences.
        tokenizer: The tokenizer of the source.
        max_length: Maximum number of tokens of a sentence.
    """
    text, spans = protection.slotted(text)
    text = tf.strings.regex_replace(text, protection.private, SLOTS[0])  # of one token
    pieces, real = protection.splitter.split(text, tokenizer, max_length)
    slotted, spans = protection.numbered(pieces.flat_values, spans)
    flat, rows = tf.where(real.flat_values), pieces.value_rowids()
    sentences = tf.gather_nd(slotted, flat)
    order = tf.argsort(tf.strings.length(sentences), stable=True)
    translations, cut = _in_batches(translate, tf.gather(sentences, order))
    flat = tf.gather(flat, order)
    translated = restore(tf.tensor_scatter_nd_update(slotted, flat, translations), spans)
    count, own = tf.size(text, tf.int64), tf.gather_nd(rows, flat)
    return {
        "translation": tf.strings.unsorted_segment_join(translated, rows, count),
        "sentences": tf.math.unsorted_segment_sum(tf.ones_like(own, tf.int32), own, count),
        "truncated": tf.math.unsorted_segment_sum(tf.cast(cut, tf.int32), own, count) > 0,
        "source_pieces": pieces.with_flat_values(restore(slotted, spans)).to_tensor(""),
        "target_pieces": pieces.with_flat_values(translated).to_tensor(""),
    }


def _in_batches(translate, texts):
    """Translations string and truncated bool [texts], in the memory that one batch takes."""

    def next_batch(row, translations, truncated):
        answer, number = translate(texts[row : row + BATCH]), row // BATCH
        translations = translations.write(number, answer["translation"])
        truncated = truncated.write(number, answer["truncated"])
        return row + BATCH, translations, truncated

    total = tf.size(texts)
    batches = (total + BATCH - 1) // BATCH
    # Of batches of different sizes: the last one is smaller.
    options = {"size": batches, "infer_shape": False, "element_shape": [None]}
    arrays = tf.TensorArray(tf.string, **options), tf.TensorArray(tf.bool, **options)
    _, translations, truncated = tf.while_loop(
        lambda row, *_: row < total, next_batch, [tf.constant(0), *arrays]
    )
    return translations.concat(), truncated.concat()
