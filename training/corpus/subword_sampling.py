"""Subword regularisation: other subwords for the same words in each epoch (arXiv 1804.10959).

SentencePiece can sample, but its generator gives other results in another process. The subwords of
a word do not depend on other words, so the splits of each distinct word are listed once, and drawn
from by a hash of (seed, epoch, place): a resumed run draws the same.
"""

import itertools

import numpy as np

from training.command.disk import chunks, drop_pages
from training.corpus.batches import gather

LINES = 1 << 18  # lines to process at a time
SPELLINGS = 8  # the most probable splits of a word that are used
FLATNESS = 0.2  # exponent of the probabilities of the other splits


class SampledSubwords:
    """Lines of subwords, in which some words are split into other subwords.

    Args:
        ids: `(values, offsets)` of the lines, as `SubwordTokenizer.encode_lines` gives.
        tokenizer: The `SubwordTokenizer` they come from.
        share: Probability that a word is split into other subwords than the best ones.
        seed: Seed of the draws, a list of int.

    Call arguments:
        numbers: int `[n]`: lines.
        epoch: int.

    Returns:
        The ids of these lines one after the other, and the number of each.
    """

    def __init__(self, ids, tokenizer, *, share, seed):
        self._ids, self._begins = ids, tokenizer.word_beginnings()
        self._seed = np.random.default_rng(seed).integers(2**63, dtype=np.uint64)
        random = np.random.default_rng(0)
        self._signs = random.integers(1 << 63, size=tokenizer.vocab_size, dtype=np.uint64)
        self._places = random.integers(1 << 63, size=4096, dtype=np.uint64) | 1
        words = {}
        for chunk in chunks(len(ids[1]) - 1, LINES):
            pieces, first, ends, _ = self._words(np.arange(chunk.start, chunk.stop))
            keys, example = np.unique(self._hashes(pieces, first, ends), return_index=True)
            for key, i in zip(keys.tolist(), example.tolist(), strict=True):
                if key not in words:
                    words[key] = _spellings(pieces[first[i] : ends[i]].tolist(), tokenizer, share)
            drop_pages(*ids)
        self._keys = np.array(sorted(words), np.uint64)
        spellings = [words[key] for key in self._keys.tolist()]
        rows = list(itertools.chain.from_iterable(spellings))
        lengths = np.array([len(pieces) for pieces, _ in rows], np.int64)
        values = np.array([piece for pieces, _ in rows for piece in pieces], ids[0].dtype)
        self._splits = values, np.append(0, np.cumsum(lengths))
        # Probabilities as bounds for a draw: word number i draws from i to i + 1.
        self._bounds = np.concatenate(
            [i + np.cumsum([p for _, p in word]) for i, word in enumerate(spellings)]
        )

    def __call__(self, numbers, epoch):
        pieces, first, ends, counts = self._words(numbers)
        words = np.searchsorted(self._keys, self._hashes(pieces, first, ends))
        place = np.repeat(numbers, counts) * 4096 + np.arange(len(first))
        place -= np.repeat(np.cumsum(counts) - counts, counts)
        draw = _uniform(place.astype(np.uint64), np.array([self._seed, epoch], np.uint64))
        # The margins keep rounding from moving a draw past the last split of its word.
        chosen = np.searchsorted(self._bounds - 1e-9, words + draw * (1 - 1e-6))
        values, lengths = gather(*self._splits, chosen)
        before = np.append(0, np.cumsum(lengths))
        lines = np.append(0, np.cumsum(counts))
        return values, before[lines[1:]] - before[lines[:-1]]

    def _words(self, numbers):
        """The ids of lines; where each word begins and ends; the number of words of each line."""
        pieces, lengths = gather(*self._ids, numbers)
        lines = np.cumsum(lengths) - lengths
        begins = self._begins[pieces]
        begins[lines[lengths > 0]] = True
        first = np.flatnonzero(begins)
        counts = np.diff(np.searchsorted(first, np.append(lines, len(pieces))))
        return pieces, first, np.append(first[1:], len(pieces)), counts

    def _hashes(self, pieces, first, ends):
        """uint64 [words]: equal for words of the same subwords."""
        within = np.arange(len(pieces)) - np.repeat(first, ends - first)
        products = self._signs[pieces] * self._places[within % 4096]  # modulo 2^64
        return np.add.reduceat(products, first) if len(first) else products


def _uniform(values, key):
    """float64 in [0, 1): the finaliser of SplitMix64 over values and a key of two numbers."""
    values = values + (key * np.uint64(0x9E3779B97F4A7C15)).sum()  # modulo 2^64
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (values ^ (values >> np.uint64(31))) / 2.0**64


def _spellings(word, tokenizer, share):
    """[(subwords, probability)] of one word, the current split first."""
    others = [
        (p, score) for p, score in tokenizer.nbest_segmentations(word, SPELLINGS) if p != word
    ]
    if not others:
        return [(word, 1.0)]
    weights = np.exp(FLATNESS * np.array([score - others[0][1] for _, score in others]))
    weights *= share / weights.sum()
    pairs = [(pieces, float(p)) for (pieces, _), p in zip(others, weights, strict=True)]
    return [(word, 1.0 - share), *pairs]
