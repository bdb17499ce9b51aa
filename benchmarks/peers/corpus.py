"""What the peers of benchmarks/bleu.py get: the same pairs, the same subwords, and a clock."""

import time
from pathlib import Path

import numpy as np
import sentencepiece

PAD, UNKNOWN, START, END = range(4)


class Task:
    """The pairs as token ids, and what is asked of them.

    Args:
        args: The command line: data, validation, minutes, every, pairs.
    """

    def __init__(self, args):
        train, valid = read(args.data), read(args.validation)
        self.spm = learned([side for pair in train for side in pair])
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.spm)
        self.vocab = self.processor.get_piece_size()
        chosen = valid[:: max(1, len(valid) // args.pairs)][: args.pairs]  # spread over the file
        sources, self.references = map(list, zip(*chosen, strict=True))
        self.sources = self.ids(sources)
        sides = (self.ids(side) for side in zip(*train, strict=True))
        self.train = list(zip(*sides, strict=True))
        self.seconds, self.every = 60 * args.minutes, 60 * args.every

    def ids(self, texts):
        return [[*row, END] for row in self.processor.encode(list(texts))]

    def batches(self, seed, *, by_length):
        """Batches of 64 shuffled pairs, which have similar lengths if that is asked for."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(self.train))
        if by_length:  # what a careful user of a peer does
            order = sorted(order, key=lambda i: len(self.train[i][1]))
        batches = [order[i : i + 64] for i in range(0, len(order), 64)]
        rng.shuffle(batches)
        for batch in batches:
            yield self.arrays([self.train[i] for i in batch])

    def arrays(self, pairs):
        """Source ids, target ids fed and target ids expected, padded with 0."""
        return (
            padded([source for source, _ in pairs]),
            padded([[START, *target[:-1]] for _, target in pairs]),
            padded([target for _, target in pairs]),
        )

    def bleu(self, decode):
        """BLEU of `decode(source ids [batch, source]) -> ids [batch, target]`."""
        import sacrebleu

        order = sorted(range(len(self.sources)), key=lambda i: len(self.sources[i]))
        texts = [""] * len(order)
        for i in range(0, len(order), 64):
            chosen = order[i : i + 64]
            ids = np.asarray(decode(padded([self.sources[j] for j in chosen])), "int32")
            for j, row in zip(chosen, ids.tolist(), strict=True):
                row = row[: row.index(END)] if END in row else row
                texts[j] = self.processor.decode([t for t in row if END < t < self.vocab])
        return round(sacrebleu.corpus_bleu(texts, [self.references]).score, 2)

    def timed(self, step, decode, *, by_length):
        """Trains until the minutes are over; evaluation is not timed.

        Returns:
            [{"minutes", "updates", "bleu"}]
        """
        rows, used, due, updates, seed = [], 0.0, self.every, 0, 0
        while True:
            for batch in self.batches(seed, by_length=by_length):
                before = time.perf_counter()
                step(*batch)
                used += time.perf_counter() - before
                updates += 1
                if used >= min(due, self.seconds):
                    row = {"minutes": round(used / 60, 3), "updates": updates}
                    rows.append(row | {"bleu": self.bleu(decode)})
                    due += self.every
                if used >= self.seconds:
                    return rows
            seed += 1


def read(path):
    """[(source, target)] of a tab-separated file."""
    text = Path(path).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    return [tuple(line.split("\t")[:2]) for line in text.removesuffix("\n").split("\n")]


def learned(texts):
    """A SentencePiece model of at most 8,000 subwords; ids 0 to 3 are those above."""
    import io

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=8000, minloglevel=2,
        hard_vocab_limit=False, byte_fallback=True, pad_id=PAD, unk_id=UNKNOWN, bos_id=START,
        eos_id=END,
    )  # fmt: skip
    return model.getvalue()


def padded(rows):
    """int32 `[batch, length]`."""
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids
