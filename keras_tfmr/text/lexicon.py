"""Likely target subwords of each source subword, learned from pairs."""

import os
from collections.abc import Sequence
from typing import IO

import numpy as np
import tensorflow as tf

from keras_tfmr.decoding.shortlist import Shortlist

# The number of candidates is a multiple of this, so that few shapes occur; `GROUP` divides it.
STEP = 256


class Lexicon:
    """The likeliest target ids of each source id, from which shortlists are made.

    Args:
        candidates: int32 `[source_vocab, n]`, the likeliest target ids of each source id, padded
            with 0; those of padding, id 0, are left out.
        always: int32 `[m]`, target ids that any translation may need.
        target_vocab: The number of target ids.

    Raises:
        ValueError: If the ranks are not 2 and 1, or an id is not in the vocabulary.

    >>> pairs = [([5, 6], [7, 8]), ([5], [7]), ([6, 5], [8, 7])]
    >>> lexicon = Lexicon.learn(pairs, source_vocab=7, target_vocab=9, n=1, always=0)
    >>> lexicon.candidates.numpy()[5:].tolist()
    [[7], [8]]
    """

    def __init__(self, candidates: np.ndarray, always: np.ndarray, target_vocab: int) -> None:
        candidates, always = np.asarray(candidates, "int32"), np.asarray(always, "int32")
        if candidates.ndim != 2 or always.ndim != 1:
            raise ValueError(
                "Lexicon expects candidates [source_vocab, n] and always [m]. Received: "
                f"{candidates.shape} and {always.shape}"
            )
        ids = np.concatenate([candidates.ravel(), always, [0]])
        if not 0 <= ids.min() <= ids.max() < target_vocab:
            raise ValueError(
                f"Lexicon expects ids from 0 to {target_vocab - 1}. Received: ids from {ids.min()} "
                f"to {ids.max()}"
            )
        # Otherwise what a row may use would depend on its padding.
        candidates = candidates * (np.arange(len(candidates)) > 0)[:, None]
        # A variable, so that the functions of an export share one copy of it.
        self.candidates = tf.Variable(candidates, trainable=False, name="candidates")
        self.always, self.target_vocab = always, int(target_vocab)

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of source ids and target ids."""
        return int(self.candidates.shape[0]), self.target_vocab

    @classmethod
    def learn(
        cls,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        source_vocab: int,
        target_vocab: int,
        n: int,
        always: int,
        rounds: int = 5,
        joint: bool = False,
    ) -> "Lexicon":
        """The lexicon of pairs of sentences, by IBM's Model 1.

        Args:
            pairs: Source ids and target ids of each pair, without start and end ids.
            source_vocab: The number of source ids.
            target_vocab: The number of target ids.
            n: The number of likeliest target ids to keep for each source id.
            always: The number of most frequent target ids to allow for every sentence.
            rounds: Rounds of expectation maximisation.
            joint: Whether both sides have the same ids. A source id is then a candidate of its own,
                as for names and numbers, which are copied.

        Paper: Brown et al. 1993, "The Mathematics of Statistical Machine Translation".
        """
        sources, targets, rows = _cells(pairs)
        cells, inverse = np.unique(sources * target_vocab + targets, return_inverse=True)
        source, target = np.divmod(cells, target_vocab)
        probability = np.ones(len(cells))  # of the target id, given the source id
        for _ in range(rounds):
            share = probability[inverse]
            share /= np.bincount(rows, share)[rows]  # of all source ids of the sentence
            count = np.bincount(inverse, share, minlength=len(cells))
            probability = count / np.bincount(source, count)[source]
        order = np.lexsort((target, -probability, source))
        source, target = source[order], target[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        candidates = np.zeros((source_vocab, n), "int32")
        kept = rank < n
        candidates[source[kept], rank[kept]] = target[kept]
        if joint:
            own = np.arange(source_vocab, dtype="int32")[:, None]
            candidates = np.concatenate([candidates, own], axis=1)
        frequency = np.bincount(np.concatenate([[0], *(np.asarray(t, int) for _, t in pairs)]))
        frequency[0] = 0
        frequent = np.argsort(-frequency, kind="stable")[:always]
        return cls(candidates, frequent[frequency[frequent] > 0], target_vocab)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Lexicon":
        """The lexicon of a file that `save` wrote."""
        with np.load(path) as arrays:
            return cls(**arrays)

    def save(self, path: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes a NumPy `.npz` file."""
        np.savez_compressed(
            path,
            candidates=self.candidates.numpy(),
            always=self.always,
            target_vocab=self.target_vocab,
        )

    def shortlist(
        self,
        source_ids: tf.Tensor,
        *,
        eos_id: int,
        bos_id: int,
        banned_ids: Sequence[int] = (),
        slot_ids: Sequence[int] = (),
        least: int = STEP,
    ) -> Shortlist:
        """The shortlist for a batch of sources.

        Args:
            source_ids: int32 `[batch, source]`, padded with 0.
            eos_id: The id that ends a translation.
            bos_id: The id that begins one.
            banned_ids: Ids that are in no shortlist.
            slot_ids: Ids that come first, and that every translation may have.
            least: The least number of candidates.

        Returns:
            The `Shortlist`; its number of candidates is a multiple of `STEP`.
        """
        batch, vocab = tf.shape(source_ids)[0], self.target_vocab
        likely = tf.reshape(tf.gather(self.candidates, source_ids), [batch, -1])
        likely += tf.range(batch)[:, None] * vocab
        counts = tf.scatter_nd(
            tf.reshape(likely, [-1, 1]),
            tf.ones([tf.size(likely)], tf.int32),
            tf.reshape(batch * vocab, [1]),
        )
        always = np.zeros(vocab, bool)
        always[self.always] = True
        special = np.zeros(vocab, bool)
        special[[0, eos_id, bos_id, *slot_ids, *banned_ids]] = True
        allowed = ((tf.reshape(counts, [batch, vocab]) > 0) | always) & ~special
        ids = tf.where(tf.reduce_any(allowed, axis=0))[:, 0]
        ids = tf.concat([[0, eos_id, bos_id, *slot_ids], tf.cast(ids, tf.int32)], axis=0)
        count = -(-tf.maximum(tf.size(ids), least) // STEP) * STEP
        ids = tf.pad(ids, [[0, count - tf.size(ids)]])
        allowed |= np.isin(np.arange(vocab), [eos_id, *slot_ids])
        allowed = tf.gather(allowed, ids, axis=1)
        return Shortlist(ids, allowed)


def _cells(pairs):
    """Every source id with every target id of its pair, and the target token that each is of."""
    sources, targets, rows, row = [], [], [], 0
    for source, target in pairs:
        source, target = np.asarray(source, "int64"), np.asarray(target, "int64")
        sources.append(np.tile(source, len(target)))
        targets.append(np.repeat(target, len(source)))
        rows.append(np.repeat(row + np.arange(len(target)), len(source)))
        row += len(target)
    return tuple(np.concatenate([np.zeros(0, "int64"), *part]) for part in (sources, targets, rows))
