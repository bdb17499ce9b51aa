"""Translates validation pairs during training, and computes BLEU and chrF.

It uses the served decoder, but greedily, on ids, and with a lower maximum length, because it takes
time from the training. The final figures come from the exported `Translator`.
"""

import keras
import numpy as np
import sacrebleu

BATCH = 64  # sentences in a batch
PADDING = 8  # lengths are padded to multiples of this, so that there are fewer shapes


class Evaluator:
    """Translates the same sentences each time it is called during training.

    They are tokenised once, and the decoding graph is traced once. Each of several workers
    translates a share; all of them get all translations.

    Args:
        model: A model with `start`; its weights may change between calls.
        tokenizers: `(source, target)`.
        pairs: List of `(source, reference)` texts.
        decoding: A `keras_tfmr.decoding.DecodingConfig`.
        workers: The `Workers`.
    """

    def __init__(self, model, tokenizers, pairs, decoding, workers):
        source, self.target = tokenizers
        self.workers = workers
        self.sources = [pair[0] for pair in pairs]
        self.references = [pair[1] for pair in pairs]
        limit = decoding.max_length
        ids = [[*row[:limit], source.end_id] for row in source.encode(self.sources).to_list()]
        self.order = np.argsort([len(row) for row in ids], kind="stable")
        rows = [ids[i] for i in self.order]
        self.batches = [padded(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)]
        longest = max(len(row) for row in ids)
        self.decoding = decoding.replace(max_length=int(decoding.max_lengths(longest)))
        self.decode = workers.compiled(decoding_function(model, self.target, self.decoding), model)

    def translate(self):
        """The translations of all sources, a list of texts."""
        texts = [None] * len(self.order)
        places = iter(self.order)
        for batch in shared(self._texts, self.batches, self.workers):
            for text in batch:
                texts[next(places)] = text
        return texts

    def _texts(self, source_ids):
        """The translations of a batch of ids."""
        return [text.decode() for text in self.target.decode(self.decode(source_ids)).numpy()]

    def measure(self):
        """Translates the sources and scores the translations.

        Returns:
            Corpus BLEU and chrF by name (sacrebleu's defaults: cased, detokenised), and the
            translations.
        """
        texts = self.translate()
        bleu, chrf = corpus_scores(texts, self.references)
        return {"bleu": bleu, "chrf": chrf}, texts

    def sample(self, number, text):
        """A translation with its source and reference, for people."""
        return f"{self.sources[number]}  ->  {text}  ({self.references[number]})"


def shared(function, parts, workers=None):
    """The results of a function for each part, in order; each of several workers computes a share.

    Args:
        function: A function of a part, whose result JSON can hold.
        parts: A list, the same on all workers.
        workers: The `Workers`, all of which have to call this; None for this process alone.
    """
    if workers is None or workers.count == 1:
        return [function(part) for part in parts]
    mine = [function(part) for part in parts[workers.index :: workers.count]]
    of_workers = workers.gather(mine)
    return [of_workers[i % workers.count][i // workers.count] for i in range(len(parts))]


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
    """A function from source ids to the ids of the best translations."""
    banned = (tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id)

    def decode(source_ids):
        ops = keras.ops
        step, state = model.start(source_ids, decoding.num_beams, max_length=decoding.max_length)
        lengths = ops.sum(ops.cast(source_ids != 0, "int32"), axis=1)
        result = decoding.decode(
            step,
            state,
            bos_ids=ops.full(ops.shape(source_ids)[:1], tokenizer.start_id, dtype="int32"),
            eos_id=tokenizer.end_id,
            banned_ids=banned,
            max_lengths=decoding.max_lengths(lengths),
        )
        return result.ids[:, 0]

    return decode


def spread(pairs, count):
    """At most `count` of the pairs, evenly spaced."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[i * len(pairs) // count] for i in range(count)]
