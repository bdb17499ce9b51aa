"""Translates validation pairs as the model learns, and measures BLEU and chrF.

With the decoder that is served, but greedily, on ids, and with less room for runaway sentences: it
takes its time from the training. The final figures come from the `Translator` that is exported.
"""

import keras
import numpy as np
import sacrebleu
import tensorflow as tf

BATCH = 64  # sentences decoded at once
PADDING = 8  # lengths are padded to multiples of this, for fewer shapes


class Evaluator:
    """Translates the same sentences again and again as the model learns.

    They are tokenised once, and the decoding graph is traced once.

    Args:
        model: Gives `start`; its weights may change between calls.
        tokenizers: `(source, target)`.
        pairs: List of `(source, reference)` texts.
        decoding: A `keras_tfmr.decoding.DecodingConfig`.
    """

    def __init__(self, model, tokenizers, pairs, decoding):
        source, self.target = tokenizers
        self.sources = [pair[0] for pair in pairs]
        self.references = [pair[1] for pair in pairs]
        limit = decoding.max_length
        ids = [[*row[:limit], source.end_id] for row in source.encode(self.sources).to_list()]
        self.order = np.argsort([len(row) for row in ids], kind="stable")
        rows = [ids[i] for i in self.order]
        self.batches = [padded(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)]
        longest = max(len(row) for row in ids)
        self.decoding = decoding.replace(max_length=int(decoding.limits(longest)))
        self.decode = decoding_function(model, self.target, self.decoding)

    def translate(self):
        """The translation of each source, a list of texts."""
        texts = [None] * len(self.order)
        places = iter(self.order)
        for source_ids in self.batches:
            for text in self.target.decode(self.decode(source_ids)).numpy():
                texts[next(places)] = text.decode()
        return texts

    def measure(self):
        """Translates, and compares with the references.

        Returns:
            Corpus BLEU and chrF (sacrebleu's defaults: cased, detokenised), and the translations.
        """
        texts = self.translate()
        return *corpus_scores(texts, self.references), texts


def corpus_scores(hypotheses, references):
    """BLEU and chrF of translations, 0 to 100."""
    bleu = sacrebleu.corpus_bleu(hypotheses, [references]).score
    return bleu, sacrebleu.corpus_chrf(hypotheses, [references]).score


def padded(rows):
    """int32 `[batch, length]` of lists of ids, padded with 0 to a multiple of `PADDING`."""
    length = -(-max(len(row) for row in rows) // PADDING) * PADDING
    ids = np.zeros((len(rows), length), np.int32)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def decoding_function(model, tokenizer, decoding):
    """A graph, traced once for all shapes: source ids in, ids of the best translations out."""
    banned = (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id)

    # Without AutoGraph: the loop is one of Keras's, and the conversion takes seconds.
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def decode(source_ids):
        step, state = model.start(source_ids, beams=decoding.beams, max_length=decoding.max_length)
        lengths = keras.ops.sum(keras.ops.cast(source_ids != 0, "int32"), axis=1)
        result = decoding.decode(
            step,
            state,
            start_ids=tf.fill(tf.shape(source_ids)[:1], tokenizer.start_id),
            end_id=tokenizer.end_id,
            banned_ids=banned,
            limits=decoding.limits(lengths),
        )
        return result.ids[:, 0]

    return decode


def spread(pairs, count):
    """At most `count` of the pairs, taken at even distances from all of them."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[i * len(pairs) // count] for i in range(count)]
