"""The loop shared by the decoders that keep one hypothesis per example."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_tfmr.decoding.loop import decode_loop
from keras_tfmr.decoding.result import DecodingResult, length_penalty


class _Loop(NamedTuple):
    position: Any  # []
    alive: Any  # bool [batch]
    tokens: Any  # int32 [batch], the last token of each hypothesis
    ids: Any  # int32 [batch, length]
    lengths: Any  # int32 [batch]
    log_probs: Any  # float32 [batch]
    state: Any


def decode_single(step, state, choose, task):
    """Extends one hypothesis per example until all have ended.

    `choose(log_probs, free, position)` picks the tokens `[batch]` and returns them with their
    log-probabilities: `log_probs` are the model's, `free` the same with minus infinity for what
    must not come next, both `[batch, vocab]`.
    """
    columns = np.arange(task.max_length, dtype="int32")

    def body(*loop):
        loop = _Loop(*loop)
        log_probs, state = step(loop.tokens, loop.state)
        free = task.constrain(log_probs, loop.position)
        tokens, gained = choose(log_probs, free, loop.position)
        tokens = ops.where(loop.alive, tokens, 0)
        lengths = loop.lengths + ops.cast(loop.alive, "int32")
        return _Loop(
            position=loop.position + 1,
            alive=(tokens != task.end_id) & (lengths < task.limits) & loop.alive,
            tokens=tokens,
            ids=ops.where(ops.equal(columns, loop.position), tokens[:, None], loop.ids),
            lengths=lengths,
            log_probs=ops.where(loop.alive, loop.log_probs + gained, loop.log_probs),
            state=state,
        )

    loop = _start(task, state)
    ids, lengths, log_probs = decode_loop(
        step,
        task.max_length,
        loop,
        going=lambda *loop: ops.any(_Loop(*loop).alive),
        body=body,
        resize=lambda loop, change: _Loop(*loop)._replace(state=change(_Loop(*loop).state)),
        result=lambda loop: (_Loop(*loop).ids, _Loop(*loop).lengths, _Loop(*loop).log_probs),
    )
    scores = log_probs / length_penalty(lengths, task.alpha)
    return DecodingResult(
        ids=ids[:, None],
        lengths=lengths[:, None],
        log_probs=log_probs[:, None],
        scores=scores[:, None],
    )


def _start(task, state):
    none = ops.zeros_like(task.start_ids)
    return _Loop(
        position=ops.convert_to_tensor(0, dtype="int32"),
        alive=task.limits > 0,
        tokens=task.start_ids,
        ids=none[:, None] + np.zeros((1, task.max_length), "int32"),
        lengths=none,
        log_probs=ops.cast(none, "float32"),
        state=tree.map_structure(ops.convert_to_tensor, state),
    )
