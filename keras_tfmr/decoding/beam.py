"""Beam search with length penalty and n-best results; greedy decoding, its case of one beam."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding.constraints import Task, check_sequences
from keras_tfmr.decoding.result import DecodingResult, lengths_of
from keras_tfmr.decoding.sample import SingleSearch
from keras_tfmr.decoding.search import DecodingStep, Search, StepFunction
from keras_tfmr.decoding.topk import argmax, top_sums


class _Hypotheses(NamedTuple):
    """The unfinished hypotheses and the n best finished ones, best first.

    A slot without a hypothesis has log-probability -inf.
    """

    ids: Any  # int32 [batch, beams, length]
    log_probs: Any  # float32 [batch, beams]
    tokens: Any  # int32 [batch, beams], the last token of each
    finished_ids: Any  # int32 [batch, n, length]
    finished_log_probs: Any  # float32 [batch, n]
    finished_scores: Any  # float32 [batch, n]


class BeamSearch(Search):
    """The search of `beam_search`.

    Finished hypotheses move out of the beam to the n best so far and do not change there. If they
    were extended after their end, they would lose probability with every step, and finally rank
    behind worse ones.
    """

    def __init__(self, step, task, num_beams, n, num_certain):
        self.num_beams, self.n, self.num_certain = num_beams, n, num_certain
        super().__init__(step, task)

    def prepare(self):
        self.best_penalty = self.task.penalty(self.task.max_lengths)  # [batch]
        self.max_lengths = self.task.max_lengths[:, None]  # [batch, 1]
        self.example = ops.arange(ops.shape(self.max_lengths)[0], dtype="int32")[:, None]
        self.columns = np.arange(self.task.max_length, dtype="int32")

    def start(self):
        """Only beam 0 holds a hypothesis, the empty one; otherwise all beams would be the same."""
        first = np.where(np.arange(self.num_beams) == 0, 0.0, -np.inf).astype("float32")
        # An example whose limit is 0 has one hypothesis, the empty one; the others have none yet.
        alone = ops.logical_and(self.max_lengths < 1, np.arange(self.n) == 0)  # [batch, n]
        scores = ops.where(alone, np.float32(0.0), np.float32(-np.inf))
        none = self.max_lengths[:, :, None] * 0  # [batch, 1, 1]
        length = self.columns.size
        return _Hypotheses(
            ids=ops.add(none, np.zeros((self.num_beams, length), "int32")),
            log_probs=ops.where(self.max_lengths > 0, first, np.float32(-np.inf)),
            tokens=ops.add(self.task.bos_ids[:, None], np.zeros(self.num_beams, "int32")),
            finished_ids=ops.add(none, np.zeros((self.n, length), "int32")),
            finished_log_probs=scores,
            finished_scores=scores,
        )

    def unfinished(self, hypotheses):
        """Whether an unfinished hypothesis could still get among the `num_certain` best.

        Its log-probability can only fall, and the length penalty is greatest at the limit, so this
        bound on its score holds.
        """
        bound = hypotheses.log_probs[:, 0] / self.best_penalty  # [batch]
        return bound > ops.take(hypotheses.finished_scores, self.num_certain - 1, axis=1)

    def extend(self, position, cache, hypotheses):
        """One token more on every unfinished hypothesis."""
        beams, length = self.num_beams, position + 1
        log_probs, cache = self.step.next(ops.reshape(hypotheses.tokens, (-1,)), cache)
        log_probs = self.task.constrain(log_probs, position, beams)  # [batch * beams, vocab]
        # 2 * beams candidates, so that a full beam survives even if the best ones all end here.
        totals, parents, tokens = top_sums(hypotheses.log_probs, log_probs, 2 * beams)
        parents = parents + self.example * beams  # [batch, 2 * beams] rows, as the next two
        ids = ops.take(_flat(hypotheses.ids), parents, axis=0)  # [batch, 2 * beams, length]
        ids = ops.where(ops.equal(self.columns, position), tokens[:, :, None], ids)
        ended = self.task.ends(tokens) | (length >= self.max_lengths)  # [batch, 2 * beams]
        # Only candidates among the best `beams` can finish; the others fill the beam up.
        found = ops.logical_and(ended, np.arange(2 * beams) < beams)
        finished = self._collect(length, hypotheses, ids, ops.where(found, totals, -np.inf))
        log_probs, chosen = ops.top_k(ops.where(ended, -np.inf, totals), beams)  # [batch, beams]
        chosen = chosen + self.example * (2 * beams)
        rows = ops.reshape(ops.take(_flat(parents), chosen), (-1,))  # [batch * beams]
        alive = ops.take(_flat(ids), chosen, axis=0), log_probs, ops.take(_flat(tokens), chosen)
        return length, self.step.reorder(cache, rows), _Hypotheses(*alive, *finished)

    def _collect(self, length, hypotheses, ids, log_probs):
        """The n best of the earlier finished hypotheses and those that end at this length.

        Args:
            length: int32 scalar.
            hypotheses: The `_Hypotheses` so far.
            ids: int32 `[batch, 2 * beams, length]`.
            log_probs: float32 `[batch, 2 * beams]`; -inf for what does not end here.

        Returns:
            Ids `[batch, n, length]`, log-probabilities and scores `[batch, n]`.
        """
        # The old ones come first, because the selection keeps the first of equal scores.
        scores = [hypotheses.finished_scores, log_probs / self.task.penalty(length)]
        scores, chosen = ops.top_k(ops.concatenate(scores, axis=1), self.n)  # [batch, n]
        chosen = chosen + self.example * (self.n + 2 * self.num_beams)
        ids = ops.concatenate([hypotheses.finished_ids, ids], axis=1)
        log_probs = ops.concatenate([hypotheses.finished_log_probs, log_probs], axis=1)
        return ops.take(_flat(ids), chosen, axis=0), ops.take(_flat(log_probs), chosen), scores

    def result(self, hypotheses):
        return hypotheses[3:]


def _flat(x):
    """`[batch, n, ...]` as `[batch * n, ...]`."""
    return ops.reshape(x, (-1, *x.shape[2:]))


def beam_search(
    step: DecodingStep | StepFunction,
    cache: Nested,
    *,
    bos_ids: Tensor,
    eos_id: int | Sequence[int],
    num_beams: int,
    num_return_sequences: int = 1,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_penalty_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    max_lengths: Tensor | None = None,
    num_certain: Tensor | None = None,
) -> DecodingResult:
    """Keeps the `num_beams` most probable unfinished hypotheses and the n best finished ones.

    The search stops as soon as no unfinished hypothesis can get among the n best. A hypothesis that
    reaches its limit without a stop id counts as finished. If the beam is wide enough to hold all
    hypotheses, the result is exactly the n best; with one beam, it is greedy decoding.

    Args:
        step: A `DecodingStep`, or a function `step(tokens, cache) -> (log_probs, cache)`. It takes
            the last token of each row, int32 `[rows]`, and returns the normalised log-probabilities
            of the next, float32 `[rows, vocab]`, where rows = batch * num_beams, the beams of an
            example side by side.
        cache: Nested tensors for `step`, each `[rows, ...]` or of rank 0, unless the step has its
            own `reorder`. What does not differ between beams belongs in the step.
        bos_ids: int32 `[batch]`, the first token fed to `step`; not part of the result.
        eos_id: The id that ends a hypothesis, or several such ids.
        num_beams: The number of unfinished hypotheses to keep.
        num_return_sequences: n, the number of hypotheses to return, at most `num_beams`.
        max_length: The maximum length in tokens, the end id included.
        min_length: The minimum length in tokens, the end id included.
        length_penalty: alpha; hypotheses are ranked by log-probability / ((5 + length) / 6)^alpha,
            arXiv 1609.08144.
        length_penalty_offset: The 5 in that formula; 0 makes it length^alpha, as in Marian.
        banned_ids: Ids that are never produced, such as start and unknown; padding, 0, is always
            banned.
        prefix: int32 `[batch, p]`, padded with 0: tokens that every hypothesis begins with.
        max_lengths: int32 `[batch]`, the maximum length of each example; 0 for one not to be
            decoded.
        num_certain: How many of the n must be certain to be the best, an int or an int32 scalar; n
            by default. The search ends as soon as these are certain; the others are the best that
            it found by then. One traced search can therefore serve calls for one hypothesis and
            calls for n.

    Returns:
        DecodingResult, distinct hypotheses in descending order of score.

    Raises:
        ValueError: If a number, id or rank is out of range.

    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, cache: (ops.take(bigrams, tokens, axis=0), cache)
    >>> result = beam_search(step, (), bos_ids=[0], eos_id=1, num_beams=3, num_return_sequences=2,
    ...     max_length=4)
    >>> np.array(result.ids).tolist()
    [[[2, 1, 0, 0], [2, 2, 1, 0]]]
    """
    check_sequences(num_return_sequences, num_beams)
    task = Task(
        bos_ids=bos_ids, eos_id=eos_id, max_length=max_length, min_length=min_length,
        length_penalty=length_penalty, length_penalty_offset=length_penalty_offset,
        banned_ids=banned_ids, prefix=prefix, max_lengths=max_lengths,
    )  # fmt: skip
    if num_beams == 1:  # needs neither a selection nor a list of finished hypotheses
        return SingleSearch(step, task, lambda log_probs, *_: argmax(log_probs)).decode(cache)
    if num_certain is None:
        num_certain = num_return_sequences
    search = BeamSearch(step, task, num_beams, num_return_sequences, num_certain)
    ids, log_probs, scores = search.run(cache)
    # If a backend does not keep the first of equal scores, a missing hypothesis may have ids.
    ids = ops.where(log_probs[:, :, None] > -np.inf, ids, 0)
    return DecodingResult(ids, lengths_of(ids), log_probs, scores)


def greedy(
    step: DecodingStep | StepFunction,
    cache: Nested,
    *,
    bos_ids: Tensor,
    eos_id: int | Sequence[int],
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_penalty_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    max_lengths: Tensor | None = None,
) -> DecodingResult:
    """Takes the most probable token at every step: `beam_search` with one beam.

    `length_penalty` changes the returned scores only. The other arguments and the errors are those
    of `beam_search`.

    Returns:
        DecodingResult with n = 1.

    >>> import numpy as np; from keras import ops
    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, cache: (ops.take(bigrams, tokens, axis=0), cache)
    >>> result = greedy(step, (), bos_ids=[0], eos_id=1, max_length=4)
    >>> np.array(result.ids).tolist(), int(result.lengths[0, 0])
    ([[[2, 1, 0, 0]]], 2)
    """
    return beam_search(
        step, cache, bos_ids=bos_ids, eos_id=eos_id, num_beams=1, max_length=max_length,
        min_length=min_length, length_penalty=length_penalty,
        length_penalty_offset=length_penalty_offset, banned_ids=banned_ids, prefix=prefix,
        max_lengths=max_lengths,
    )  # fmt: skip
