"""Subword regularisation: other subwords for the same words in each epoch (arXiv 1804.10959).

SentencePiece can sample, but its generator does not give the same results in two processes. The
subwords of a word do not depend on other words, so the splits of each distinct word are listed
once, and each epoch draws from them with NumPy, as a pure function of (seed, epoch).
"""

import itertools

import numpy as np

from training.corpus import arrays
from training.corpus.batches import Batches

LINES = 1 << 18  # lines to process at a time
SPELLINGS = 8  # the most probable splits of a word that are used
FLATNESS = 0.2  # exponent of the probabilities of the other splits


class SampledSubwords:
    """Lines of subwords, in which some words are split into other subwords.

    Args:
        ids: `(values, offsets)` of the lines, as `SubwordTokenizer.encode_lines` gives.
        tokenizer: The `SubwordTokenizer` they come from.
        share: Probability that a word is split into other subwords than the best ones.
        seed: Seed of the draws; a sequence of int.
        scratch: A folder for data that grows with the corpus; in memory by default.
    """

    def __init__(self, ids, tokenizer, *, share, seed, scratch=None):
        values, offsets = ids
        self.seed, self._scratch, self._dtype = list(seed), scratch, values.dtype
        beginnings, signs = tokenizer.word_beginnings(), _Hashes(tokenizer.vocab_size)
        numbers, spellings = {}, []  # {hash of a word: its number}; the splits of each word
        words, ends = arrays.Buffer(scratch, np.int32), arrays.Buffer(scratch, np.int64)
        ends.append([0])
        for chunk in arrays.chunks(len(offsets) - 1, LINES):
            lines = np.asarray(offsets[chunk.start : chunk.stop + 1])
            pieces = np.asarray(values[lines[0] : lines[-1]])
            lines = lines - lines[0]
            begins = beginnings[pieces]
            begins[lines[:-1][np.diff(lines) > 0]] = True
            first = np.flatnonzero(begins)
            stops = np.append(first[1:], len(pieces))
            hashes, example, inverse = np.unique(
                signs.of(pieces, first, stops), return_index=True, return_inverse=True
            )
            for key, i in zip(hashes.tolist(), example.tolist(), strict=True):
                if key not in numbers:
                    numbers[key] = len(numbers)
                    word = pieces[first[i] : stops[i]].tolist()
                    spellings.append(_spellings(word, tokenizer, share))
            ends.append(len(words) + np.searchsorted(first, lines[1:]))
            words.append(np.array([numbers[key] for key in hashes.tolist()], np.int32)[inverse])
            arrays.forget(values, offsets)
        self._words, self._offsets = words.array(), ends.array()
        self._tabulate(spellings)

    def _tabulate(self, spellings):
        """Flattens the splits of all words, and turns probabilities into bounds for a draw."""
        rows = list(itertools.chain.from_iterable(spellings))
        self._lengths = np.array([len(pieces) for pieces, _ in rows], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._pieces = np.array([piece for pieces, _ in rows for piece in pieces], self._dtype)
        self._bounds = np.concatenate(
            [[0.0], *(i + np.cumsum([p for _, p in word]) for i, word in enumerate(spellings))]
        )[1:]

    def draw(self, epoch):
        """`(values, offsets)` of an epoch."""
        random = np.random.default_rng([*self.seed, epoch])
        values = arrays.Buffer(self._scratch, self._dtype)
        offsets = arrays.Buffer(self._scratch, np.int64)
        offsets.append([0])
        for chunk in arrays.chunks(len(self._offsets) - 1, LINES):
            lines = np.asarray(self._offsets[chunk.start : chunk.stop + 1])
            words = np.asarray(self._words[lines[0] : lines[-1]])
            # The margins keep rounding from moving a draw past the last split of its word.
            chosen = np.searchsorted(
                self._bounds - 1e-9, words + random.random(len(words)) * (1 - 1e-6)
            )
            lengths = self._lengths[chosen]
            ends = np.cumsum(lengths)
            back = np.repeat(ends - lengths - self._starts[chosen], lengths)
            offsets.append(len(values) + np.append(0, ends)[lines[1:] - lines[0]])
            values.append(self._pieces[np.arange(len(back)) - back])
            arrays.forget(self._words, self._offsets)
        return values.array(), offsets.array()


class SampledBatches:
    """`Batches` with other subwords in each epoch.

    Args:
        source, target: `SampledSubwords`.
        options: As for `Batches`.
    """

    def __init__(self, source, target, **options):
        self.source, self.target, self.options = source, target, options
        self._epoch = self._batches = None

    def of(self, epoch):
        """The `Batches` of an epoch; the last ones are kept."""
        if self._epoch != epoch:
            sides = self.source.draw(epoch), self.target.draw(epoch)
            self._epoch, self._batches = epoch, Batches(*sides, **self.options)
        return self._batches

    def steps_per_epoch(self, epoch=0):
        """Number of batches of an epoch."""
        return self.of(epoch).steps_per_epoch()

    def dataset(self, epoch=0, skip=0, **shard):
        """As `Batches.dataset`."""
        return self.of(epoch).dataset(epoch, skip, **shard)

    def summary(self):
        """A line about the batches of the first epoch, for people."""
        return self.of(0).summary() + "; subwords are drawn again in every epoch"


class _Hashes:
    """Hashes of words, equal for words of the same subwords."""

    def __init__(self, vocab_size):
        draw = np.random.default_rng(0)
        self._signs = draw.integers(1 << 63, size=vocab_size, dtype=np.uint64)
        self._places = draw.integers(1 << 63, size=4096, dtype=np.uint64) | 1

    def of(self, pieces, first, ends):
        """uint64 [words]: hashes of the words `pieces[first[i]:ends[i]]`, which have no gaps."""
        within = np.arange(len(pieces)) - np.repeat(first, ends - first)
        places = self._places[within % len(self._places)]
        products = self._signs[pieces] * places  # modulo 2^64
        return np.add.reduceat(products, first) if len(first) else products


def _spellings(word, tokenizer, share):
    """[(subwords, probability)] of one word, the current split first."""
    others = [(pieces, score) for pieces, score in tokenizer.spellings(word, SPELLINGS)]
    others = [(pieces, score) for pieces, score in others if pieces != word]
    if not others:
        return [(word, 1.0)]
    weights = np.exp(FLATNESS * np.array([score - others[0][1] for _, score in others]))
    weights *= share / weights.sum()
    pairs = [(pieces, float(p)) for (pieces, _), p in zip(others, weights, strict=True)]
    return [(word, 1.0 - share), *pairs]
