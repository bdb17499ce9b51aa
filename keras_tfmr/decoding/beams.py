"""Beam search: the best hypotheses of each example."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_tfmr.compat import take
from keras_tfmr.decoding import loop
from keras_tfmr.decoding.topk import top_sums


class Beams(NamedTuple):
    """The unfinished and the n best finished hypotheses of each example, and what belongs to it.

    Hypotheses stand best first. A missing one has log-probability -inf.
    """

    examples: Any  # int32 [batch], the index of each in the batch that the search began with
    limits: Any  # `Limits`
    best_penalty: Any  # float32 [batch], the greatest length penalty, that of the maximum length
    ids: Any  # int32 [batch, beams, length]
    log_probs: Any  # float32 [batch, beams]
    tokens: Any  # int32 [batch, beams], the last token of each
    pending: Any  # int32 [batch, beams], a bit for each slot that is still to come; or ()
    finished_ids: Any  # int32 [batch, n, length]
    finished_log_probs: Any  # float32 [batch, n]
    finished_scores: Any  # float32 [batch, n]


def beam_search(step, state, constraints, examples, limits, num_certain):
    """Keeps the `num_beams` most probable unfinished hypotheses and the n best finished ones.

    Finished hypotheses move out of the beam to the n best so far and do not change there. If they
    were extended after their end, they would lose probability with every step, and finally rank
    behind worse ones.

    Args:
        step: A `DecodingStep`.
        state: Its first state.
        constraints: The `Constraints`.
        examples: The `Examples`.
        limits: Their `Limits`.
        num_certain: As for `search`.

    Returns:
        DecodingResult.
    """
    config, num_beams = constraints.config, constraints.config.num_beams
    columns = np.arange(config.max_length, dtype="int32")
    penalties = constraints.penalty(np.arange(1 + config.max_length, dtype="int32"))
    worst_certain = num_certain - 1  # its place

    def unfinished(beams):
        """Whether an unfinished hypothesis could still get among the `num_certain` best.

        Its log-probability can only fall, and the length penalty is greatest at the limit, so this
        bound on its score holds.
        """
        bound = beams.log_probs[:, 0] / beams.best_penalty  # [batch]
        return bound > ops.take(beams.finished_scores, worst_certain, axis=1)

    def extend(position, rows, state, beams):
        """Adds one token to every unfinished hypothesis."""
        limits, next_position = beams.limits, position + 1
        place = constraints.place(position, limits)
        length = constraints.place(next_position, limits)
        totals, parents, tokens, state = _candidates(
            step, state, constraints, beams, position, place, rows
        )
        if constraints.has_prompt:  # examples begin, and so end, at different positions
            penalty = take(penalties, ops.clip(length, 0, config.max_length))[:, None]
            place = place[:, None, None]
        else:
            penalty = take(penalties, length)
        ids = _take(beams.ids, parents)  # [batch, 2 * beams, length]
        ids = ops.where(ops.equal(columns, place), tokens[:, :, None], ids)
        ended = constraints.ends(tokens, length, limits)  # [batch, 2 * beams]

        beams = _with_finished(beams, ids, totals, ended, penalty, rows)
        log_probs, chosen = ops.top_k(ops.where(ended, -np.inf, totals), num_beams)
        chosen = chosen + rows * (2 * num_beams)  # [batch, beams]
        parents, tokens = _take(parents, chosen), _take(tokens, chosen)
        pending = tree.map_structure(lambda slots: _take(slots, parents), beams.pending)
        state = step.reorder(state, ops.reshape(parents, (-1,)))
        beams = beams._replace(
            ids=_take(ids, chosen),
            log_probs=log_probs,
            tokens=tokens,
            pending=constraints.remaining(pending, tokens),
        )
        return next_position, state, beams

    def result(beams):
        # NaN ends no hypothesis, and would be lost.
        lost = ops.any(ops.isnan(beams.log_probs), axis=1, keepdims=True)  # [batch, 1]
        log_probs = ops.where(lost, np.float32(np.nan), beams.finished_log_probs)
        return beams.finished_ids, log_probs, beams.finished_scores

    first = _first(examples, limits, take(penalties, limits.max_lengths), config)
    return loop.run(step, state, first, extend, unfinished, result)


def _first(examples, limits, best_penalty, config):
    """The `Beams` before the first token.

    Only beam 0 holds a hypothesis, the empty one; otherwise all beams would be the same.
    """
    num_beams, n, length = config.num_beams, config.num_return_sequences, config.max_length
    only = np.where(np.arange(num_beams) == 0, 0.0, -np.inf).astype("float32")
    # An example whose limit is 0 has one hypothesis, the empty one; the others have none yet.
    max_lengths = limits.max_lengths[:, None]  # [batch, 1]
    alone = ops.logical_and(max_lengths < 1, np.arange(n) == 0)  # [batch, n]
    scores = ops.where(alone, np.float32(0.0), np.float32(-np.inf))
    none = max_lengths[:, :, None] * 0  # [batch, 1, 1]
    slots = () if examples.slots is None else examples.slots
    return Beams(
        examples=ops.arange(ops.shape(max_lengths)[0], dtype="int32"),
        limits=limits._replace(max_lengths=max_lengths),
        best_penalty=best_penalty,
        ids=ops.add(none, np.zeros((num_beams, length), "int32")),
        log_probs=ops.where(max_lengths > 0, only, np.float32(-np.inf)),
        tokens=ops.add(examples.bos_ids[:, None], np.zeros(num_beams, "int32")),
        pending=tree.map_structure(lambda x: ops.repeat(x[:, None], num_beams, axis=1), slots),
        finished_ids=ops.add(none, np.zeros((n, length), "int32")),
        finished_log_probs=scores,
        finished_scores=scores,
    )


def _candidates(step, state, constraints, beams, position, place, rows):
    """The 2 * beams most probable continuations of each example, best first.

    So many that a full beam survives even if the best ones all end here.

    Args:
        step, state, constraints: As for `beam_search`.
        beams: The `Beams` before this token.
        position, rows: As for `extend`.
        place: That of the token, of `Constraints.place`.

    Returns:
        float32 `[batch, 2 * beams]` log-probabilities; int32 of this shape each, the hypotheses
        that are continued, rows of `state`, and the tokens; and the next state.
    """
    num_beams, limits = beams.tokens.shape[1], beams.limits
    tokens = ops.reshape(beams.tokens, (-1,))  # [batch * beams]
    values, normaliser, state = step.unnormalised(tokens, state)  # [batch * beams, vocab]
    values = constraints.constrain(values, place, beams.pending, limits)
    so_far = beams.log_probs - ops.reshape(normaliser, (-1, num_beams))
    totals, parents, tokens = top_sums(so_far, values, 2 * num_beams, rows)
    if constraints.has_prompt:  # within it, beam 0 alone goes on, with its next token
        within, is_first = place[:, None] < 0, np.arange(2 * num_beams) == 0
        alone = ops.where(is_first, beams.log_probs[:, :1], -np.inf)
        totals = ops.where(within, alone, totals)
        parents = ops.where(within, rows * num_beams, parents)
        tokens = ops.where(within, constraints.of_prompt(position, limits)[:, None], tokens)
    return totals, parents, tokens, state


def _with_finished(beams, ids, totals, ended, penalty, rows):
    """Adds the candidates that end here to the finished hypotheses, and keeps the n best.

    Args:
        beams: The `Beams` before this token.
        ids: int32 `[batch, 2 * beams, length]`, the candidates, best first.
        totals: float32 `[batch, 2 * beams]`, their log-probabilities.
        ended: bool `[batch, 2 * beams]`, which of them end here.
        penalty: The length penalty of this length, a float32 scalar or `[batch, 1]`.
        rows: As for `extend`.
    """
    num_beams, n, candidates = beams.ids.shape[1], beams.finished_ids.shape[1], totals.shape[1]
    # Only candidates among the best `beams` can finish; the others fill the beam up. The earlier
    # ones come first, because the selection keeps the first of equal scores.
    finishing = ops.logical_and(ended, np.arange(candidates) < num_beams)
    log_probs = ops.where(finishing, totals, -np.inf)  # [batch, 2 * beams]
    scores = ops.concatenate([beams.finished_scores, log_probs / penalty], axis=1)
    scores, best = ops.top_k(scores, n)  # [batch, n]
    best = best + rows * (n + candidates)
    all_ids = ops.concatenate([beams.finished_ids, ids], axis=1)
    all_log_probs = ops.concatenate([beams.finished_log_probs, log_probs], axis=1)
    return beams._replace(
        finished_ids=_take(all_ids, best),
        finished_log_probs=_take(all_log_probs, best),
        finished_scores=scores,
    )


def _take(x, rows):
    """`x` `[batch, m, ...]`, as `[batch * m, ...]`, at `rows` `[batch, k]`: `[batch, k, ...]`."""
    return take(ops.reshape(x, (-1, *x.shape[2:])), rows)
