"""Beam search with length penalty and n-best results."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_tfmr._types import Nested, Tensor
from keras_tfmr.decoding.constraints import make_task, rows_of
from keras_tfmr.decoding.greedy import most_probable
from keras_tfmr.decoding.loop import decode_loop
from keras_tfmr.decoding.result import DecodingResult, length_penalty, lengths_of
from keras_tfmr.decoding.single import decode_single
from keras_tfmr.decoding.step import DecodingStep, StepFunction, as_step
from keras_tfmr.decoding.topk import top_sums


class _Alive(NamedTuple):
    """Unfinished hypotheses, best first. A slot without one has log-probability -inf."""

    ids: Any  # int32 [rows, length]
    log_probs: Any  # float32 [batch, beam]
    tokens: Any  # int32 [rows], the last token
    state: Any  # leaves [rows, ...]


class _Finished(NamedTuple):
    """The n best hypotheses that have ended, as in a `DecodingResult`."""

    ids: Any  # int32 [batch, n, length]
    log_probs: Any  # float32 [batch, n]
    scores: Any  # float32 [batch, n]


class _Search:
    """The fixed quantities of one search, and its steps; see `decode_loop`.

    Finished hypotheses move out of the beam to the n best so far and do not change there. If they
    were extended after their end, they would lose probability with every step, and finally rank
    behind worse ones.
    """

    def __init__(self, step, task, beams, n, enough):
        self.step, self.task, self.beams, self.n = step, task, beams, n
        self.enough = n if enough is None else enough
        self.limits = task.limits[:, None]  # [batch, 1]
        self.best_penalty = length_penalty(task.limits, task.alpha, task.offset)  # [batch]
        self.columns = np.arange(task.max_length, dtype="int32")
        self.example = ops.arange(ops.shape(task.limits)[0], dtype="int32")[:, None]  # [batch, 1]

    def start(self, state):
        """Only beam 0 holds a hypothesis, the empty one; otherwise all beams would be the same."""
        rows = ops.repeat(self.task.start_ids, self.beams, axis=0)
        first = np.where(np.arange(self.beams) == 0, 0.0, -np.inf).astype("float32")
        alive = _Alive(
            ids=ops.add(rows[:, None] * 0, np.zeros_like(self.columns)),
            log_probs=ops.where(self.limits > 0, first, -np.inf),
            tokens=rows,
            state=tree.map_structure(ops.convert_to_tensor, state),
        )
        # An example whose limit is 0 has one hypothesis, the empty one; the others have none yet.
        alone = ops.logical_and(self.limits < 1, np.arange(self.n) == 0)  # [batch, n]
        scores = ops.where(alone, np.float32(0.0), np.float32(-np.inf))
        ids = ops.add(self.limits[:, :, None] * 0, np.zeros((self.n, self.columns.size), "int32"))
        finished = _Finished(ids, log_probs=scores, scores=scores)
        return ops.convert_to_tensor(0, dtype="int32"), alive, finished

    def resize(self, loop, room):
        position, alive, finished = loop
        return position, alive._replace(state=self.step.resize(alive.state, room)), finished

    def result(self, loop):
        ids, log_probs, scores = loop[2]
        # If a backend does not keep the first of equal scores, a missing hypothesis may have ids.
        ids = ops.where(log_probs[:, :, None] > -np.inf, ids, 0)
        return DecodingResult(ids, lengths_of(ids), log_probs, scores)

    def take(self, examples):
        step, task = self.step.take(examples), self.task.take(examples)
        return _Search(step, task, self.beams, self.n, self.enough)

    def keep(self, loop, examples):
        position, alive, finished = loop
        rows = rows_of(examples, self.beams)
        alive = _Alive(
            ids=ops.take(alive.ids, rows, axis=0),
            log_probs=ops.take(alive.log_probs, examples, axis=0),
            tokens=ops.take(alive.tokens, rows, axis=0),
            state=self.step.keep(alive.state, examples),
        )
        finished = _Finished(*(ops.take(field, examples, axis=0) for field in finished))
        return position, alive, finished

    def unfinished(self, position, alive, finished):
        """Whether an unfinished hypothesis could still get among the `enough` best.

        Its log-probability can only fall, and the length penalty is greatest at the limit, so this
        bound on its score holds.
        """
        bound = alive.log_probs[:, 0] / self.best_penalty  # [batch]
        return bound > ops.take(finished.scores, self.enough - 1, axis=1)

    def extend(self, position, alive, finished):
        """One token more on every unfinished hypothesis."""
        log_probs, state = self.step(alive.tokens, alive.state)  # [rows, vocab]
        log_probs = self.task.constrain(log_probs, position)
        # 2 * beams candidates, so that a full beam survives even if the best ones all end here.
        totals, parents, tokens = top_sums(alive.log_probs, log_probs, 2 * self.beams)
        parents = ops.reshape(parents + self.example * self.beams, (-1,))  # [batch * candidates]
        tokens = ops.reshape(tokens, (-1,))
        ids = ops.take(alive.ids, parents, axis=0)  # [batch * candidates, length]
        ids = ops.where(ops.equal(self.columns, position), tokens[:, None], ids)
        length = position + 1
        ended = ops.reshape(ops.equal(tokens, self.task.end_id), (-1, 2 * self.beams))
        ended = ended | (length >= self.limits)  # [batch, candidates]
        # Only candidates among the best `beams` can finish; the others fill the beam up.
        found = ops.logical_and(ended, np.arange(2 * self.beams) < self.beams)
        finished = self._collect(length, finished, ids, ops.where(found, totals, -np.inf))
        log_probs, chosen = ops.top_k(ops.where(ended, -np.inf, totals), self.beams)
        chosen = ops.reshape(chosen + self.example * (2 * self.beams), (-1,))  # [rows]
        parents = ops.take(parents, chosen, axis=0)
        alive = _Alive(
            ids=ops.take(ids, chosen, axis=0),
            log_probs=log_probs,
            tokens=ops.take(tokens, chosen, axis=0),
            state=self.step.reorder(state, parents),
        )
        return length, alive, finished

    def _collect(self, length, finished, ids, log_probs):
        """The n best of the earlier finished hypotheses and those that end at this length."""
        scores = log_probs / length_penalty(length, self.task.alpha, self.task.offset)
        # The old ones come first, because the selection keeps the first of equal scores.
        scores, chosen = ops.top_k(ops.concatenate([finished.scores, scores], axis=1), self.n)
        chosen = ops.reshape(chosen + self.example * (self.n + 2 * self.beams), (-1,))

        def select(old, new):
            both = ops.concatenate([old, new], axis=1)
            rest = both.shape[2:]
            kept = ops.take(ops.reshape(both, (-1, *rest)), chosen, axis=0)  # [batch * n, ...]
            return ops.reshape(kept, (-1, self.n, *rest))

        return _Finished(
            ids=select(finished.ids, ops.reshape(ids, (-1, 2 * self.beams, ids.shape[-1]))),
            log_probs=select(finished.log_probs, log_probs),
            scores=scores,
        )


def beam_search(
    step: DecodingStep | StepFunction,
    state: Nested,
    *,
    start_ids: Tensor,
    end_id: int,
    beams: int,
    n: int = 1,
    max_length: int,
    min_length: int = 0,
    length_penalty: float = 0.0,
    length_offset: float = 5.0,
    banned_ids: Sequence[int] = (),
    prefix: Tensor | None = None,
    limits: Tensor | None = None,
    enough: Tensor | None = None,
) -> DecodingResult:
    """Keeps the `beams` most probable unfinished hypotheses and the n best finished ones.

    The search stops as soon as no unfinished hypothesis can get among the n best. A hypothesis that
    reaches its limit without the end id counts as finished. If the beam is wide enough to hold all
    hypotheses, the result is exactly the n best; with one beam, it is greedy decoding.

    Args:
        step: As for `greedy`, over rows = batch * beams, the beams of an example side by side.
        state: nested tensors for `step`, each `[rows, ...]` or of rank 0, unless the step has its
            own `reorder`. What does not differ between beams belongs in the step.
        start_ids: int32 `[batch]`, the first token fed to `step`; not part of the result.
        end_id: The id that ends a hypothesis.
        beams: The number of unfinished hypotheses to keep.
        n: The number of hypotheses to return, at most `beams`.
        max_length: The maximum length in tokens, the end id included.
        min_length: The minimum length in tokens, the end id included.
        length_penalty: alpha; hypotheses are ranked by log-probability / ((5 + length) / 6)^alpha.
        length_offset: The 5 in that formula; 0 makes it length^alpha. See `length_penalty`.
        banned_ids: Ids that are never produced, such as start and unknown; padding, 0, is always
            banned.
        prefix: int32 `[batch, p]`, padded with 0: tokens that every hypothesis begins with.
        limits: int32 `[batch]`, the maximum length of each example; 0 for one not to be decoded.
        enough: How many of the n must be certain to be the best, an int or an int32 scalar; n by
            default. The search ends as soon as these are certain; the others are the best that it
            found by then. One compiled search can therefore serve calls for one hypothesis and
            calls for n.

    Returns:
        DecodingResult, distinct hypotheses in descending order of score.

    Raises:
        ValueError: If a number, id or rank is out of range.

    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, state: (ops.take(bigrams, tokens, axis=0), state)
    >>> result = beam_search(step, (), start_ids=[0], end_id=1, beams=3, n=2, max_length=4)
    >>> np.array(result.ids).tolist()
    [[[2, 1, 0, 0], [2, 2, 1, 0]]]
    """
    if not 1 <= n <= beams:
        raise ValueError(f"n must lie between 1 and beams={beams}; received {n}")
    task = make_task(
        start_ids=start_ids,
        end_id=end_id,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        length_offset=length_offset,
        banned_ids=banned_ids,
        prefix=prefix,
        limits=limits,
        beams=beams,
    )
    if beams == 1:
        return decode_single(step, state, most_probable, task)
    search = _Search(as_step(step), task, beams, n, enough)
    return decode_loop(search, search.start(state))
