"""The loop shared by the decoders that keep one hypothesis per example."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_tfmr.decoding.loop import decode_loop
from keras_tfmr.decoding.result import DecodingResult, length_penalty, lengths_of
from keras_tfmr.decoding.step import as_step


class _Loop(NamedTuple):
    position: Any  # []
    alive: Any  # bool [batch]
    tokens: Any  # int32 [batch], the last token of each hypothesis
    ids: Any  # int32 [batch, length], padded with 0
    log_probs: Any  # float32 [batch]
    state: Any


class _Single:
    """The fixed quantities of decoding one hypothesis per example; see `decode_loop`."""

    def __init__(self, step, choose, task, rows):
        self.step, self.choose, self.task = step, choose, task
        self.rows = rows  # int32 [batch], the index of each example in the original batch
        self.columns = np.arange(task.max_length, dtype="int32")

    def start(self, state):
        task, none = self.task, ops.zeros_like(self.task.start_ids)
        return _Loop(
            position=ops.convert_to_tensor(0, dtype="int32"),
            alive=task.limits > 0,
            tokens=task.start_ids,
            ids=ops.add(none[:, None], np.zeros((1, task.max_length), "int32")),
            log_probs=ops.cast(none, "float32"),
            state=tree.map_structure(ops.convert_to_tensor, state),
        )

    def extend(self, *loop):
        """One token more on every hypothesis that is alive."""
        loop, task = _Loop(*loop), self.task
        log_probs, state = self.step(loop.tokens, loop.state)
        free = task.constrain(log_probs, loop.position)
        tokens, gained = self.choose(log_probs, free, loop.position, self.rows)
        tokens = ops.where(loop.alive, tokens, 0)
        length = loop.position + 1
        return loop._replace(
            position=length,
            alive=(tokens != task.end_id) & (length < task.limits) & loop.alive,
            tokens=tokens,
            ids=ops.where(ops.equal(self.columns, loop.position), tokens[:, None], loop.ids),
            log_probs=ops.where(loop.alive, loop.log_probs + gained, loop.log_probs),
            state=state,
        )

    def unfinished(self, *loop):
        return _Loop(*loop).alive

    def resize(self, loop, room):
        loop = _Loop(*loop)
        return loop._replace(state=self.step.resize(loop.state, room))

    def result(self, loop):
        loop = _Loop(*loop)
        return loop.ids, loop.log_probs

    def take(self, examples):
        step, task = self.step.take(examples), self.task.take(examples)
        return _Single(step, self.choose, task, examples)

    def keep(self, loop, examples):
        position, *parts, state = loop
        parts = (ops.take(part, examples, axis=0) for part in parts)
        return _Loop(position, *parts, self.step.keep(state, examples))


def decode_single(step, state, choose, task):
    """Extends one hypothesis per example until all have ended.

    `choose(log_probs, free, position, rows)` picks the tokens `[batch]` and returns them with their
    log-probabilities. `log_probs` are the model's, `free` the same with minus infinity for tokens
    that must not come next, both `[batch, vocab]`. `rows` int32 `[batch]` is the index of each
    example in the original batch.
    """
    rows = ops.arange(ops.shape(task.start_ids)[0], dtype="int32")
    search = _Single(as_step(step), choose, task, rows)
    ids, log_probs = decode_loop(search, search.start(state))
    lengths = lengths_of(ids)
    scores = log_probs / length_penalty(lengths, task.alpha, task.offset)
    return DecodingResult(
        ids=ids[:, None],
        lengths=lengths[:, None],
        log_probs=log_probs[:, None],
        scores=scores[:, None],
    )
