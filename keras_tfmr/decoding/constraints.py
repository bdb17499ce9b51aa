"""Constraints on hypotheses: banned ids, lengths, a forced prefix."""

import copy
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_tfmr.decoding.topk import last_axis


def check_options(*, end_id, max_length, min_length, length_penalty, length_offset, banned_ids):
    """Raises a ValueError if an option common to all decoders is out of range."""
    if end_id < 1:
        raise ValueError(f"end_id must be at least 1 (0 is padding); received {end_id}")
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1; received {max_length}")
    if not 0 <= min_length <= max_length:
        raise ValueError(
            f"min_length must lie between 0 and max_length={max_length}; received {min_length}"
        )
    if length_penalty < 0:
        # The early exit relies on a length penalty that does not fall with the length.
        raise ValueError(f"length_penalty must not be negative; received {length_penalty}")
    if not 0 <= length_offset < np.inf:
        raise ValueError(f"length_offset must be finite and not negative; received {length_offset}")
    if any(banned < 0 for banned in banned_ids):
        raise ValueError(f"banned_ids must not be negative; received {tuple(banned_ids)}")


def check_rank(name, value, rank):
    """The value as an int32 tensor; raises a ValueError unless it has this rank."""
    value = ops.convert_to_tensor(value, dtype="int32")
    if len(value.shape) != rank:
        raise ValueError(f"{name} must have rank {rank}; received shape {tuple(value.shape)}")
    return value


class Task(NamedTuple):
    """The checked options that all decoders share."""

    start_ids: Any  # int32 [batch]
    end_id: int
    max_length: int
    alpha: float  # of the length penalty
    offset: float  # of the length penalty
    limits: Any  # int32 [batch], the maximum length of each example
    constrain: Any  # Constraints, over rows
    beams: int  # rows of an example

    def take(self, examples):
        """The task of some of the examples, int32 `[n]`."""
        return self._replace(
            start_ids=ops.take(self.start_ids, examples, axis=0),
            limits=ops.take(self.limits, examples, axis=0),
            constrain=self.constrain.take(rows_of(examples, self.beams)),
        )


def rows_of(examples, beams):
    """The rows of some examples, whose beams lie side by side: int32 `[n]` to `[n * beams]`."""
    rows = ops.add(examples[:, None] * beams, np.arange(beams, dtype="int32"))  # [n, beams]
    return ops.reshape(rows, (-1,))


def make_task(
    *, start_ids, end_id, max_length, min_length, length_penalty, length_offset, banned_ids, prefix,
    limits, beams=1,
):  # fmt: skip
    """The `Task` of a decoder's arguments; raises a ValueError if one is out of range."""
    check_options(
        end_id=end_id,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        length_offset=length_offset,
        banned_ids=banned_ids,
    )
    start_ids = check_rank("start_ids", start_ids, 1)
    if limits is None:
        limits = ops.zeros_like(start_ids) + max_length
    if prefix is not None:
        prefix = ops.repeat(check_rank("prefix", prefix, 2), beams, axis=0)
    return Task(
        start_ids,
        end_id,
        max_length,
        length_penalty,
        length_offset,
        limits=ops.clip(check_rank("limits", limits, 1), 0, max_length),
        constrain=Constraints(
            end_id=end_id, min_length=min_length, banned_ids=banned_ids, prefix=prefix
        ),
        beams=beams,
    )


class Constraints:
    """Sets the log-probability of tokens that must not come next to minus infinity.

    Nothing is renormalised: the other tokens keep the model's own log-probability, so the score of
    a hypothesis is the same whether it was searched for freely, forced or scored afterwards.

    Args:
        end_id: The id that ends a hypothesis.
        min_length: The minimum length in tokens, the end id included.
        banned_ids: Ids that are never produced; padding, 0, is always banned.
        prefix: int32 `[rows, p]`, padded with 0, or None: tokens that every hypothesis begins with,
            even if they are banned.
    """

    def __init__(self, *, end_id, min_length, banned_ids, prefix):
        self.end_id = end_id
        self.min_length = min_length
        self.banned_ids = sorted({0, *banned_ids})
        self.prefix = prefix
        if prefix is not None:
            # A last column of padding, for all the positions after the prefix.
            self.prefix = ops.pad(prefix, [[0, 0], [0, 1]])  # [rows, p + 1]

    def __call__(self, log_probs, position):
        """The log-probabilities `[rows, vocab]` at 0-based `position`, constrained."""
        vocab = last_axis(log_probs)
        if isinstance(vocab, int) and max([*self.banned_ids, self.end_id]) >= vocab:
            raise ValueError(
                f"end_id={self.end_id} and banned_ids={tuple(self.banned_ids)} must be below the "
                f"vocabulary size {vocab}"
            )
        free = ops.add(log_probs, self._bias(vocab, position))
        return free if self.prefix is None else self._forced(log_probs, free, position)

    def take(self, rows):
        """The constraints of some of the rows."""
        if self.prefix is None:
            return self
        taken = copy.copy(self)
        taken.prefix = ops.take(self.prefix, rows, axis=0)
        return taken

    def _bias(self, vocab, position):
        """0 for allowed ids and minus infinity for forbidden ones, `[vocab]`."""
        some = vocab if isinstance(vocab, int) else max([*self.banned_ids, self.end_id]) + 1
        bias = np.zeros(some, "float32")
        bias[self.banned_ids] = -np.inf
        if self.min_length > 1:
            early = bias.copy()
            early[self.end_id] = -np.inf
            bias = ops.where(position + 1 < self.min_length, early, bias)
        return bias if some is vocab else ops.pad(bias, [[0, vocab - some]])

    def _forced(self, log_probs, free, position):
        """Within the prefix, allows only its token, which keeps its log-probability."""
        last = ops.shape(self.prefix)[1] - 1
        token = ops.take(self.prefix, ops.minimum(position, last), axis=1)[:, None]  # [rows, 1]
        ids = ops.arange(ops.shape(log_probs)[-1], dtype="int32")
        alone = ops.where(ops.equal(ids, token), log_probs, -np.inf)
        return ops.where(token > 0, alone, free)
