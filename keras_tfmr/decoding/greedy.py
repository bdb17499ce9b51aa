"""Greedy search and sampling: one hypothesis for each example."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.decoding import loop
from keras_tfmr.decoding.result import lengths_of
from keras_tfmr.decoding.sampling import Sampling, draw
from keras_tfmr.decoding.topk import most_probable


class Hypotheses(NamedTuple):
    """One hypothesis for each example, and what belongs to the example."""

    examples: Any  # int32 [batch], the index of each in the batch that the search began with
    limits: Any  # `Limits`
    draws: Any  # `Draws` of a `Sampling`; or ()
    alive: Any  # bool [batch]
    tokens: Any  # int32 [batch], the last token
    ids: Any  # int32 [batch, length], padded with 0
    log_probs: Any  # float32 [batch]
    pending: Any  # int32 [batch], a bit for each slot that is still to come; or ()


def greedy_search(step, state, constraints, examples, limits, choose=None):
    """Adds the most probable token to the hypothesis of each example, or the one that is chosen.

    Args:
        step: A `DecodingStep`.
        state: Its first state.
        constraints: The `Constraints`.
        examples: The `Examples`.
        limits: Their `Limits`.
        choose: As for `search`.

    Returns:
        DecodingResult. With `choose`, log-probabilities and scores leave the prefix out.
    """
    columns = np.arange(constraints.config.max_length, dtype="int32")

    def extend(position, rows, state, hypotheses):
        """Adds one token to every hypothesis that is alive."""
        alive, limits, length = hypotheses.alive, hypotheses.limits, position + 1
        place = constraints.place(position, limits)
        values, normaliser, state = step.unnormalised(hypotheses.tokens, state)  # [batch, vocab]
        values = constraints.constrain(values, place, hypotheses.pending, limits)
        if choose is None:
            tokens, best = most_probable(values)  # [batch] each
            gained = best - normaliser[:, 0]
        else:
            behind = constraints.behind_prefix(place, limits)
            tokens, gained = _chosen(choose, values - normaliser, place, behind, hypotheses)
        if constraints.has_prompt:
            within, given = place < 0, constraints.of_prompt(position, limits)
            tokens, gained = ops.where(within, given, tokens), ops.where(within, 0.0, gained)
            place = place[:, None]  # [batch, 1]
        tokens = ops.where(alive, tokens, 0)
        total = ops.where(alive, hypotheses.log_probs + gained, hypotheses.log_probs)
        ended = constraints.ends(tokens, constraints.place(length, limits), limits)
        hypotheses = hypotheses._replace(
            alive=alive & ~ended & (total > -np.inf),
            tokens=tokens,
            ids=ops.where(ops.equal(columns, place), tokens[:, None], hypotheses.ids),
            log_probs=total,
            pending=constraints.remaining(hypotheses.pending, tokens),
        )
        return length, state, hypotheses

    def result(hypotheses):
        ids, log_probs = hypotheses.ids[:, None], hypotheses.log_probs[:, None]
        lengths = lengths_of(ids)  # [batch, 1]
        if choose is not None:
            lengths = constraints.behind_prefix(lengths[:, 0], hypotheses.limits)
            lengths = ops.maximum(lengths, 0)[:, None]
        return ids, log_probs, log_probs / constraints.penalty(lengths)

    none = ops.zeros_like(examples.bos_ids)  # [batch]
    first = Hypotheses(
        examples=ops.arange(ops.shape(none)[0], dtype="int32"),
        limits=limits,
        draws=choose.draws(none, len(columns)) if isinstance(choose, Sampling) else (),
        alive=limits.max_lengths > 0,
        tokens=examples.bos_ids,
        ids=ops.add(none[:, None], np.zeros_like(columns)),
        log_probs=ops.cast(none, "float32"),
        pending=() if examples.slots is None else examples.slots,
    )
    return loop.run(step, state, first, extend, lambda hypotheses: hypotheses.alive, result)


def _chosen(choose, log_probs, place, behind, hypotheses):
    """The chosen tokens and what they add to the log-probabilities, `[batch]` each.

    Args:
        log_probs: float32 `[batch, vocab]`.
        place: The number of tokens before, a scalar or `[batch]`.
        behind: The same counted from the end of the prefix.
    """
    if isinstance(choose, Sampling):
        count = behind + ops.zeros_like(hypotheses.tokens)  # [batch]
        tokens = draw(log_probs, count, hypotheses.draws)
    else:
        tokens = choose(log_probs, place, hypotheses.examples)
    batch, vocab = log_probs.shape
    last = vocab - 1 if isinstance(vocab, int) else _checks.LARGEST
    tokens = _checks.tensor("a choice", tokens, "int32", 0, last, rows=batch)
    gained = ops.take_along_axis(log_probs, tokens[:, None], axis=1)[:, 0]
    return tokens, ops.where((behind >= 0) | (gained == -np.inf), gained, 0.0)
