"""What every side is given: the same pairs, the same subwords, and a clock."""

import itertools
import time

import numpy as np

from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus.pairs import read_pairs
from training.report.evaluation import corpus_scores, spread


class Task:
    """The pairs as token ids, and what is asked of them.

    Args:
        args: The command line: data, validation, minutes, every, pairs.
    """

    def __init__(self, args):
        train = read_pairs(args.data)
        sources, targets = train.sources, train.targets
        self.tokenizer = SubwordTokenizer.learn([*sources, *targets], vocab_size=8000)
        self.vocab = self.tokenizer.vocab_size
        self.start, self.end = self.tokenizer.start_id, self.tokenizer.end_id
        self.train = list(zip(self._ids(sources), self._ids(targets), strict=True))
        valid = read_pairs(args.validation)
        pairs = spread(list(zip(valid.sources, valid.targets, strict=True)), args.pairs)
        self.references = [pair[1] for pair in pairs]
        self.sources = self._ids([pair[0] for pair in pairs])
        self.seconds, self.every = 60 * args.minutes, 60 * args.every

    def _ids(self, lines):
        values, offsets = self.tokenizer.encode_lines(lines)
        return [[*values[a:b].tolist(), self.end] for a, b in itertools.pairwise(offsets)]

    def by_length(self, seed):
        """Batches of 64 pairs of like length, shuffled: what a careful user of a peer does."""
        rng = np.random.default_rng(seed)
        order = sorted(range(len(self.train)), key=lambda i: (len(self.train[i][1]), rng.random()))
        batches = [order[i : i + 64] for i in range(0, len(order), 64)]
        rng.shuffle(batches)
        for batch in batches:
            yield self.arrays([self.train[i] for i in batch])

    def as_they_come(self, seed):
        """Batches of 64 shuffled pairs, padded to the longest: what the tutorial does."""
        order = np.random.default_rng(seed).permutation(len(self.train))
        for i in range(0, len(order), 64):
            yield self.arrays([self.train[j] for j in order[i : i + 64]])

    def arrays(self, pairs):
        """Source ids, target ids fed and target ids expected, padded with 0."""
        return (
            padded([source for source, _ in pairs]),
            padded([[self.start, *target[:-1]] for _, target in pairs]),
            padded([target for _, target in pairs]),
        )

    def bleu(self, decode):
        """BLEU of `decode(source ids [batch, source]) -> ids [batch, target]`, its time aside."""
        order = np.argsort([len(ids) for ids in self.sources], kind="stable")
        texts = [None] * len(order)
        for i in range(0, len(order), 64):
            chosen = order[i : i + 64]
            ids = np.asarray(decode(padded([self.sources[j] for j in chosen])), "int32")
            for j, text in zip(chosen, self.tokenizer.decode(ids).numpy(), strict=True):
                texts[j] = text.decode("utf-8", "replace")
        return corpus_scores(texts, self.references)[0]

    def timed(self, step, order, decode):
        """Trains until the minutes are over, measuring at intervals; evaluation is not timed.

        Yields:
            {"minutes", "updates", "bleu"}
        """
        used, due, updates, seed = 0.0, self.every, 0, 0
        while True:
            for batch in order(seed):
                before = time.perf_counter()
                step(*batch)
                used += time.perf_counter() - before
                updates += 1
                if used >= due or used >= self.seconds:
                    row = {"minutes": round(used / 60, 2), "updates": updates}
                    yield row | {"bleu": round(self.bleu(decode), 2)}
                    due += self.every
                if used >= self.seconds:
                    return
            seed += 1


def padded(rows):
    """int32 `[batch, length]`."""
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids
