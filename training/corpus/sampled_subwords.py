"""Other subwords for the same words in every epoch (subword regularisation, arXiv 1804.10959).

SentencePiece can sample, but from a generator of its own that no seed makes the same in two
processes. A word's subwords do not depend on its neighbours, so the spellings of each distinct
word are listed once, and an epoch draws among them with NumPy: a pure function of (seed, epoch).
"""

import itertools

import numpy as np

from training.corpus.batches import Batches

SPELLINGS = 8  # of a word, the most probable ones
FLATNESS = 0.2  # the power that the probabilities of the others are raised to


class SampledSubwords:
    """Lines of subwords, some of their words spelled with others.

    Args:
        ids: `(values, offsets)` of the lines, as `SubwordTokenizer.encode_lines` gives.
        tokenizer: the `SubwordTokenizer` they come from.
        share: probability of a word to be spelled otherwise than it is best.
        seed: of the draws; a sequence of int.
    """

    def __init__(self, ids, tokenizer, *, share, seed):
        values, offsets = ids
        self.seed = list(seed)
        begins = tokenizer.word_beginnings()[values]
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        first = np.flatnonzero(begins)
        self._offsets = np.searchsorted(first, offsets)  # the word that each line begins with
        ends = np.append(first[1:], len(values))
        _, example, self._words = np.unique(
            _hashes(values, first, ends), return_index=True, return_inverse=True
        )
        words = (values[first[i] : ends[i]].tolist() for i in example)
        self._tabulate([_spellings(word, tokenizer, share) for word in words], values.dtype)

    def _tabulate(self, spellings, dtype):
        """All spellings of all words laid flat; probabilities as the bounds of a draw."""
        rows = list(itertools.chain.from_iterable(spellings))
        self._lengths = np.array([len(pieces) for pieces, _ in rows], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._pieces = np.array([piece for pieces, _ in rows for piece in pieces], dtype)
        self._bounds = np.concatenate(
            [[0.0], *(i + np.cumsum([p for _, p in word]) for i, word in enumerate(spellings))]
        )[1:]

    def draw(self, epoch):
        """`(values, offsets)` of an epoch."""
        random = np.random.default_rng([*self.seed, epoch]).random(len(self._words))
        # 1e-9: rounding must not carry a draw over the last spelling of its word.
        chosen = np.searchsorted(self._bounds - 1e-9, self._words + random * (1 - 1e-6))
        lengths = self._lengths[chosen]
        ends = np.cumsum(lengths)
        back = np.repeat(ends - lengths - self._starts[chosen], lengths)
        values = self._pieces[np.arange(len(back)) - back]
        return values, np.append(0, ends)[self._offsets]


class SampledBatches:
    """`Batches` of other subwords in every epoch.

    Args:
        source, target: `SampledSubwords`.
        options: as for `Batches`.
    """

    def __init__(self, source, target, **options):
        self.source, self.target, self.options = source, target, options
        self._epoch = self._batches = None

    def of(self, epoch):
        """The `Batches` of an epoch; the latest ones are kept."""
        if self._epoch != epoch:
            sides = self.source.draw(epoch), self.target.draw(epoch)
            self._epoch, self._batches = epoch, Batches(*sides, **self.options)
        return self._batches

    def steps_per_epoch(self, epoch=0):
        """Number of batches of an epoch."""
        return self.of(epoch).steps_per_epoch()

    def dataset(self, epoch=0, skip=0):
        """As `Batches.dataset`."""
        return self.of(epoch).dataset(epoch, skip)

    def summary(self):
        """One line for people, about the first epoch."""
        return self.of(0).summary() + "; subwords drawn anew in every epoch"


def _hashes(values, first, ends):
    """uint64 [words], equal for words of the same pieces."""
    draw = np.random.default_rng(0)
    lengths = ends - first
    signs = draw.integers(1 << 63, size=int(values.max(initial=0)) + 1, dtype=np.uint64)
    places = draw.integers(1 << 63, size=int(lengths.max(initial=1)), dtype=np.uint64) | 1
    within = np.arange(len(values)) - np.repeat(first, lengths)
    products = signs[values] * places[within]  # modulo 2^64
    return np.add.reduceat(products, first) if len(first) else products


def _spellings(word, tokenizer, share):
    """[(pieces, probability)] of one word, the way it is now first."""
    others = [(pieces, score) for pieces, score in tokenizer.spellings(word, SPELLINGS)]
    others = [(pieces, score) for pieces, score in others if pieces != word]
    if not others:
        return [(word, 1.0)]
    weights = np.exp(FLATNESS * np.array([score - others[0][1] for _, score in others]))
    weights *= share / weights.sum()
    pairs = [(pieces, float(p)) for (pieces, _), p in zip(others, weights, strict=True)]
    return [(word, 1.0 - share), *pairs]
