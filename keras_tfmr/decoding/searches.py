"""The searches: `search`, the entry point, and what each does with the hypotheses of the loop.

`SingleSearch` keeps one hypothesis for each example, `ChosenSearch` one whose tokens are chosen in
another way, such as by `Sampling`, and `BeamSearch` the best.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_tfmr import _checks
from keras_tfmr._checks import instance
from keras_tfmr.compat import take
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding.constraints import Constraints
from keras_tfmr.decoding.decoding_config import DecodingConfig
from keras_tfmr.decoding.examples import Examples
from keras_tfmr.decoding.loop import Search
from keras_tfmr.decoding.result import DecodingResult, lengths_of
from keras_tfmr.decoding.sampling import Sampling
from keras_tfmr.decoding.step import DecodingStep, FunctionStep, StepFunction
from keras_tfmr.decoding.topk import most_probable, top_sums


def search(
    step: DecodingStep | StepFunction,
    state: Nested,
    config: DecodingConfig,
    examples: Examples,
    *,
    choose: Sampling | Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    num_certain: Tensor | None = None,
) -> DecodingResult:
    """Decodes a batch of examples, one token after the other.

    With several beams, it keeps the `num_beams` most probable unfinished hypotheses and the n best
    finished ones, and stops as soon as no unfinished one can get among them. A hypothesis that
    reaches its limit without a stop id counts as finished. If the beam is wide enough to hold all
    hypotheses, the result is exactly the n best. With one beam, it takes the most probable token at
    every step, or another that `choose` chooses.

    Args:
        step: A `DecodingStep`, or a function `step(tokens, state) -> (log_probs, state)`. It takes
            the last token of each row, int32 `[rows]`, and returns the normalised log-probabilities
            of the next, float32 `[rows, vocab]`, where rows = batch * num_beams, the beams of an
            example side by side.
        state: Nested tensors for `step`, each `[rows, ...]` or of rank 0, unless the step has its
            own `reorder`. What does not differ between beams belongs in the step.
        config: A `DecodingConfig`: lengths, beams, length penalty. A search leaves its
            `max_length_ratio` and `max_length_extra` to `max_lengths` of the examples.
        examples: The `Examples`: where each begins, its limit, prefix and slots, and special ids.
        choose: A `Sampling`, or a function `choose(log_probs, position, examples)` that returns the
            next tokens, int32 `[batch]`. It takes the model's log-probabilities, float32 `[batch,
            vocab]`, with minus infinity for tokens that must not come; the number of tokens before,
            an int32 scalar; and for each row the index of its example, int32 `[batch]`, because
            examples that have ended may leave the batch. It needs `num_beams=1`.
        num_certain: How many of the n must be certain to be the best, an int or an int32 scalar; n
            by default. The search ends as soon as these are certain; the others are the best that
            it found by then. One traced search can therefore serve calls for one hypothesis and
            calls for n.

    Returns:
        DecodingResult, distinct hypotheses in descending order of score. Log-probabilities are the
        model's own. With `choose`, those of a prefix are left out, and the scores divide by the
        length penalty of the other tokens.

    Raises:
        ValueError: If a shape, or a number or id whose value is known, is out of range, or the step
            was started for other beams or fewer tokens.
        TypeError: If `step`, `config` or `examples` is something else.

    >>> bigrams = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    >>> step = lambda tokens, state: (ops.take(bigrams, tokens, axis=0), state)
    >>> config = DecodingConfig(num_beams=3, num_return_sequences=2, max_length=4)
    >>> examples = Examples(bos_ids=[0], eos_id=1)
    >>> np.array(search(step, (), config, examples).ids).tolist()
    [[[2, 1, 0, 0], [2, 2, 1, 0]]]
    >>> np.array(search(step, (), config.replace(num_beams=1, num_return_sequences=1), examples,
    ...     choose=lambda log_probs, *_: ops.top_k(log_probs, 2)[1][:, 1]).ids).tolist()
    [[[1, 0, 0, 0]]]
    """
    step = step if isinstance(step, DecodingStep) else FunctionStep(step)
    instance("config", config, DecodingConfig)
    instance("examples", examples, Examples)
    room = _checks.known(step.max_length)  # None for any number, and for one known in a run only
    if room is not None and room < config.max_length:
        raise ValueError(
            f"The step was started for max_length={room} tokens; "
            f"received max_length={config.max_length}"
        )
    if step.num_beams not in (None, config.num_beams):
        raise ValueError(
            f"The step was started for num_beams={step.num_beams}; "
            f"received num_beams={config.num_beams}"
        )
    constraints = Constraints(config, examples, step.max_length if room is None else None)
    n = config.num_return_sequences
    certain = (
        n if num_certain is None else _checks.tensor("num_certain", num_certain, "int32", 1, n)
    )
    if choose is not None:
        if config.num_beams > 1:
            raise ValueError(f"`choose` needs num_beams=1; received {config.num_beams}")
        return ChosenSearch(step, constraints, choose).decode(state)
    if config.num_beams == 1:  # needs neither a selection nor a list of finished hypotheses
        return SingleSearch(step, constraints).decode(state)
    return BeamSearch(step, constraints, certain).decode(state)


class SingleHypotheses(NamedTuple):
    """One hypothesis for each example."""

    alive: Any  # bool [batch]
    tokens: Any  # int32 [batch], the last token
    ids: Any  # int32 [batch, length], padded with 0
    log_probs: Any  # float32 [batch]
    pending: Any  # int32 [batch], a bit for each slot that is still to come; or ()


class SingleSearch(Search):
    """The search that keeps one hypothesis for each example: the most probable next token."""

    def next_tokens(self, values, normaliser, position):
        """The next tokens `[batch]`, and what they add to the log-probabilities `[batch]`.

        Args:
            values, normaliser: As `DecodingStep.unnormalised` gives them, without what is banned.
        """
        tokens, best = most_probable(values)
        return tokens, best - normaliser[:, 0]

    def start(self):
        none = ops.zeros_like(self.constraints.bos_ids)  # [batch]
        return SingleHypotheses(
            alive=self.constraints.max_lengths > 0,
            tokens=self.constraints.bos_ids,
            ids=ops.add(none[:, None], np.zeros_like(self.columns)),
            log_probs=ops.cast(none, "float32"),
            pending=self.constraints.slots,
        )

    def unfinished(self, hypotheses):
        return hypotheses.alive

    def extend(self, position, state, hypotheses):
        """One token more on every hypothesis that is alive."""
        alive, tokens, ids, total, pending = hypotheses
        values, normaliser, state = self.step.unnormalised(tokens, state)  # [batch, vocab]
        values = self.constraints.constrain(values, position, pending)
        tokens, gained = self.next_tokens(values, normaliser, position)  # [batch] each
        tokens = ops.where(alive, tokens, 0)
        total = ops.where(alive, total + gained, total)
        ended = self.constraints.ends(tokens, position) | (
            position + 1 >= self.constraints.max_lengths
        )
        ids = ops.where(ops.equal(self.columns, position), tokens[:, None], ids)  # [batch, length]
        alive = alive & ~ended & (total > -np.inf)
        pending = self.constraints.remaining(pending, tokens)
        return position + 1, state, SingleHypotheses(alive, tokens, ids, total, pending)

    def result(self, hypotheses):
        ids, log_probs = hypotheses.ids[:, None], hypotheses.log_probs[:, None]
        return ids, log_probs, log_probs / self.constraints.penalty(lengths_of(ids))


class ChosenSearch(SingleSearch):
    """The search whose next token is chosen in another way; it scores what follows the prefix.

    Args:
        step, constraints: As for `Search`.
        choose: As for `search`.
    """

    def __init__(self, step, constraints, choose):
        super().__init__(step, constraints)
        self.choose = choose.chooser(constraints) if isinstance(choose, Sampling) else choose

    def next_tokens(self, values, normaliser, position):
        log_probs = values - normaliser
        tokens = self.choose(log_probs, position, self.examples)
        rows, vocab = log_probs.shape
        last = vocab - 1 if isinstance(vocab, int) else _checks.LARGEST
        tokens = _checks.tensor("a choice", tokens, "int32", 0, last, rows=rows)
        gained = ops.take_along_axis(log_probs, tokens[:, None], axis=1)[:, 0]
        counted = self.constraints.behind_prefix(position) >= 0
        return tokens, ops.where(counted | (gained == -np.inf), gained, 0.0)

    def result(self, hypotheses):
        ids, log_probs, _ = super().result(hypotheses)
        lengths = ops.maximum(self.constraints.behind_prefix(lengths_of(ids[:, 0])), 0)  # [batch]
        return ids, log_probs, log_probs / self.constraints.penalty(lengths)[:, None]


class BeamHypotheses(NamedTuple):
    """The unfinished hypotheses and the n best finished ones, best first.

    A missing hypothesis has log-probability -inf.
    """

    ids: Any  # int32 [batch, beams, length]
    log_probs: Any  # float32 [batch, beams]
    tokens: Any  # int32 [batch, beams], the last token of each
    pending: Any  # int32 [batch, beams], a bit for each slot that is still to come; or ()
    finished_ids: Any  # int32 [batch, n, length]
    finished_log_probs: Any  # float32 [batch, n]
    finished_scores: Any  # float32 [batch, n]


class BeamSearch(Search):
    """The search that keeps the best hypotheses.

    Finished hypotheses move out of the beam to the n best so far and do not change there. If they
    were extended after their end, they would lose probability with every step, and finally rank
    behind worse ones.

    Args:
        step, constraints: As for `Search`.
        num_certain: As for `search`.
    """

    def __init__(self, step, constraints, num_certain):
        super().__init__(step, constraints)
        config = constraints.config
        self.num_beams, self.n = config.num_beams, config.num_return_sequences
        self.worst_certain = num_certain - 1  # its place
        self._set_limits()

    def _set_limits(self):
        """What all steps of the loop share, for the examples of the constraints."""
        max_lengths = self.constraints.max_lengths
        self.penalties = self.constraints.penalty(np.arange(1 + self.max_length, dtype="int32"))
        self.best_penalty = take(self.penalties, max_lengths)  # [batch]
        self.max_lengths = max_lengths[:, None]  # [batch, 1]
        self.batch_row = ops.arange(ops.shape(max_lengths)[0], dtype="int32")[:, None]  # [batch, 1]

    def of(self, examples):
        part = super().of(examples)
        part._set_limits()
        return part

    def start(self):
        """Only beam 0 holds a hypothesis, the empty one; otherwise all beams would be the same."""
        first = np.where(np.arange(self.num_beams) == 0, 0.0, -np.inf).astype("float32")
        # An example whose limit is 0 has one hypothesis, the empty one; the others have none yet.
        alone = ops.logical_and(self.max_lengths < 1, np.arange(self.n) == 0)  # [batch, n]
        scores = ops.where(alone, np.float32(0.0), np.float32(-np.inf))
        none = self.max_lengths[:, :, None] * 0  # [batch, 1, 1]
        return BeamHypotheses(
            ids=ops.add(none, np.zeros((self.num_beams, self.max_length), "int32")),
            log_probs=ops.where(self.max_lengths > 0, first, np.float32(-np.inf)),
            tokens=ops.add(self.constraints.bos_ids[:, None], np.zeros(self.num_beams, "int32")),
            pending=tree.map_structure(
                lambda slots: ops.repeat(slots[:, None], self.num_beams, axis=1),
                self.constraints.slots,
            ),
            finished_ids=ops.add(none, np.zeros((self.n, self.max_length), "int32")),
            finished_log_probs=scores,
            finished_scores=scores,
        )

    def unfinished(self, hypotheses):
        """Whether an unfinished hypothesis could still get among the `num_certain` best.

        Its log-probability can only fall, and the length penalty is greatest at the limit, so this
        bound on its score holds.
        """
        bound = hypotheses.log_probs[:, 0] / self.best_penalty  # [batch]
        return bound > ops.take(hypotheses.finished_scores, self.worst_certain, axis=1)

    def extend(self, position, state, hypotheses):
        """One token more on every unfinished hypothesis."""
        beams, n, length = self.num_beams, self.n, position + 1
        values, normaliser, state = self.step.unnormalised(
            ops.reshape(hypotheses.tokens, (-1,)), state
        )  # [batch * beams, vocab]
        values = self.constraints.constrain(values, position, hypotheses.pending)
        so_far = hypotheses.log_probs - ops.reshape(normaliser, (-1, beams))

        # 2 * beams candidates, so that a full beam survives even if the best ones all end here.
        # The parents are rows of `state`.
        totals, parents, tokens = top_sums(
            so_far, values, 2 * beams, self.batch_row
        )  # [batch, 2 * beams] each
        ids = _take(hypotheses.ids, parents)  # [batch, 2 * beams, length]
        ids = ops.where(ops.equal(self.columns, position), tokens[:, :, None], ids)
        ended = self.constraints.ends(tokens, position) | (
            length >= self.max_lengths
        )  # [batch, 2 * beams]

        # Only candidates among the best `beams` can finish; the others fill the beam up. The
        # earlier ones come first, because the selection keeps the first of equal scores.
        finishing = ops.logical_and(ended, np.arange(2 * beams) < beams)
        ended_log_probs = ops.where(finishing, totals, -np.inf)  # [batch, 2 * beams]
        scores = [hypotheses.finished_scores, ended_log_probs / take(self.penalties, length)]
        scores, best = ops.top_k(ops.concatenate(scores, axis=1), n)  # [batch, n]
        best = best + self.batch_row * (n + 2 * beams)
        all_ids = ops.concatenate([hypotheses.finished_ids, ids], axis=1)
        all_log_probs = ops.concatenate([hypotheses.finished_log_probs, ended_log_probs], axis=1)

        log_probs, chosen = ops.top_k(ops.where(ended, -np.inf, totals), beams)  # [batch, beams]
        chosen = chosen + self.batch_row * (2 * beams)
        parents, tokens = _take(parents, chosen), _take(tokens, chosen)  # [batch, beams]
        state = self.step.reorder(state, ops.reshape(parents, (-1,)))
        pending = tree.map_structure(lambda slots: _take(slots, parents), hypotheses.pending)
        hypotheses = BeamHypotheses(
            ids=_take(ids, chosen),
            log_probs=log_probs,
            tokens=tokens,
            pending=self.constraints.remaining(pending, tokens),
            finished_ids=_take(all_ids, best),
            finished_log_probs=_take(all_log_probs, best),
            finished_scores=scores,
        )
        return length, state, hypotheses

    def result(self, hypotheses):
        _, _, _, _, ids, log_probs, scores = hypotheses
        return ids, log_probs, scores


def _take(x, rows):
    """`x` `[batch, m, ...]`, as `[batch * m, ...]`, at `rows` `[batch, k]`: `[batch, k, ...]`."""
    return take(ops.reshape(x, (-1, *x.shape[2:])), rows)
