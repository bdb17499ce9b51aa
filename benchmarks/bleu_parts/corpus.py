"""What every side is given: the same pairs, the same subwords, and a clock."""

import itertools
import json
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import measure


def prepare(args):
    """Writes what a `Task` holds to `args.task`, so that a peer's process needs no TensorFlow."""
    from keras_tfmr.text.tokenizer import SubwordTokenizer
    from training.corpus.pairs import read_pairs
    from training.report.evaluation import spread

    train, valid = read_pairs(args.data), read_pairs(args.validation)
    tokenizer = SubwordTokenizer.learn([*train.sources, *train.targets], vocab_size=8000)

    def ids(lines):
        values, offsets = tokenizer.encode_lines(lines)
        ends = itertools.pairwise(offsets)
        return [[*values[a:b].tolist(), tokenizer.end_id] for a, b in ends]

    pairs = spread(list(zip(valid.sources, valid.targets, strict=True)), args.pairs)
    task = {
        "vocab": tokenizer.vocab_size,
        "start": tokenizer.start_id,
        "end": tokenizer.end_id,
        "unknown": tokenizer.unknown_id,
        "train": list(zip(ids(train.sources), ids(train.targets), strict=True)),
        "sources": ids([source for source, _ in pairs]),
        "references": [target for _, target in pairs],
        "model": tokenizer.model_bytes,
    }
    Path(args.task).write_bytes(pickle.dumps(task))


class Task:
    """The pairs as token ids, and what is asked of them.

    Args:
        args: The command line: task (see `prepare`), minutes, every.
    """

    def __init__(self, args):
        self.path = args.task
        task = pickle.loads(Path(args.task).read_bytes())
        self.vocab, self.start, self.end = task["vocab"], task["start"], task["end"]
        self.unknown, self.model = task["unknown"], task["model"]
        self.train, self.sources = task["train"], task["sources"]
        self.seconds, self.every = 60 * args.minutes, 60 * args.every

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
        found = [None] * len(order)
        for i in range(0, len(order), 64):
            chosen = order[i : i + 64]
            ids = np.asarray(decode(padded([self.sources[j] for j in chosen])), "int32")
            for j, row in zip(chosen, ids.tolist(), strict=True):
                found[j] = row
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(found, file)
            file.flush()
            backend = {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(Path(__file__).parents[2])}
            return measure.alone(__file__, self.path, file.name, environment=backend)

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


def score(path, file):
    """BLEU of token ids, in a process of its own."""
    from keras_tfmr.text.tokenizer import SubwordTokenizer
    from training.report.evaluation import corpus_scores

    task = pickle.loads(Path(path).read_bytes())
    ids = json.loads(Path(file).read_text())
    texts = SubwordTokenizer(task["model"]).decode(padded(ids)).numpy()
    texts = [text.decode("utf-8", "replace") for text in texts]
    measure.answer(corpus_scores(texts, task["references"])[0])


if __name__ == "__main__":
    score(*sys.argv[1:])
