"""Constraints of a search for each example: lengths, stop ids, banned ids, prefix and slots."""

import copy

import numpy as np
from keras import ops

from keras_tfmr.decoding.result import length_penalty, lengths_of
from keras_tfmr.decoding.step import select_rows
from keras_tfmr.decoding.topk import last_axis


class Constraints:
    """The options of a search, and what holds for each example of its batch.

    Args:
        config: A `DecodingConfig`.
        bos_ids, eos_id, banned_ids, prefix, max_lengths, slot_ids, slots: As for `beam_search`.

    Raises:
        ValueError: If an id or rank is out of range.
    """

    def __init__(
        self, config, *, bos_ids, eos_id, banned_ids=(), prefix=None, max_lengths=None,
        slot_ids=(), slots=None,
    ):  # fmt: skip
        self.config = config
        self.eos_ids = (eos_id,) if np.ndim(eos_id) == 0 else tuple(eos_id)
        if not self.eos_ids or min(self.eos_ids) < 1:
            raise ValueError(f"eos_id must be at least 1 (0 is padding); received {eos_id}")
        if any(banned < 0 for banned in banned_ids):
            raise ValueError(f"banned_ids must not be negative; received {tuple(banned_ids)}")
        self.banned_ids = sorted({0, *banned_ids})
        self.bos_ids = _tensor("bos_ids", bos_ids, 1)  # [batch]
        if max_lengths is None:
            max_lengths = ops.zeros_like(self.bos_ids) + config.max_length
        max_lengths = _tensor("max_lengths", max_lengths, 1)
        self.max_lengths = ops.clip(max_lengths, 0, config.max_length)  # [batch]
        self.prefix = prefix
        if prefix is not None:
            # A last column of padding, for all the positions after the prefix.
            self.prefix = ops.pad(_tensor("prefix", prefix, 2), [[0, 0], [0, 1]])  # [batch, p + 1]
        self.slot_ids = tuple(slot_ids)
        self.bits = 2 ** np.arange(len(self.slot_ids), dtype="int32")
        if len(self.bits) > 31 or (slots is None) == bool(self.slot_ids):
            raise ValueError(
                "slots must be given for up to 31 slot_ids; received "
                f"slot_ids={self.slot_ids}, slots={slots}"
            )
        self.slots = () if slots is None else _tensor("slots", slots, 1)  # [batch]
        self.greatest = max(*self.banned_ids, *self.eos_ids, *self.slot_ids)

    def select(self, examples):
        """The constraints of some of the examples, int32 `[n]`."""
        some, tensors = copy.copy(self), (self.bos_ids, self.max_lengths, self.prefix, self.slots)
        some.bos_ids, some.max_lengths, some.prefix, some.slots = select_rows(tensors, examples)
        return some

    def remaining(self, pending, tokens):
        """The slots that are still to come after these tokens, int32 of the same shape; or ()."""
        if not self.slot_ids:
            return ()
        left = np.full(self.greatest + 2, -1, "int32")  # the bits that stay, by token
        left[list(self.slot_ids)] = ~self.bits
        left = ops.take(left, ops.minimum(tokens, len(left) - 1), axis=0)
        return ops.bitwise_and(pending, left)

    def penalty(self, lengths):
        """The length penalty by which a log-probability is divided."""
        return length_penalty(
            lengths, self.config.length_penalty, self.config.length_penalty_offset
        )

    def prefix_lengths(self):
        """The number of tokens in the prefix of each example, int32 `[batch]`."""
        return ops.zeros_like(self.bos_ids) if self.prefix is None else lengths_of(self.prefix)

    def ends(self, tokens):
        """bool of the shape of `tokens`: which of them end a hypothesis."""
        if len(self.eos_ids) == 1:
            return ops.equal(tokens, self.eos_ids[0])
        return ops.any(ops.equal(tokens[..., None], np.array(self.eos_ids, "int32")), axis=-1)

    def constrain(self, log_probs, position, pending, num_beams=1):
        """Minus infinity for tokens that must not come at the 0-based `position`.

        Nothing is renormalised: the other tokens keep the model's own log-probability, so the score
        of a hypothesis is the same whether it was searched for freely, forced or scored afterwards.
        Within the prefix only its token is allowed, even if it is banned.

        Args:
            log_probs: float32 `[batch * num_beams, vocab]`.
            position: int32 scalar.
            pending: int32 `[batch, num_beams]`, a bit for each slot that is still to come; or ().
        """
        vocab = last_axis(log_probs)
        if isinstance(vocab, int) and self.greatest >= vocab:
            raise ValueError(
                f"eos_id={self.eos_ids}, banned_ids={tuple(self.banned_ids)} and "
                f"slot_ids={self.slot_ids} must be below the vocabulary size {vocab}"
            )
        banned = [*self.banned_ids, *self.slot_ids]
        bias = self._table(vocab, banned, -np.inf)
        if self.config.min_length > 1:
            early = self._table(vocab, [*banned, *self.eos_ids], -np.inf)
            bias = ops.where(position + 1 < self.config.min_length, early, bias)
        free = ops.add(log_probs, bias)  # [batch * num_beams, vocab]
        if self.slot_ids:  # examples without slots pay for one comparison only
            free = ops.cond(
                ops.any(pending > 0),
                lambda: self._with_slots(log_probs, free, ops.reshape(pending, (-1, 1))),
                lambda: free,
            )
        if self.prefix is None:
            return free
        last = ops.shape(self.prefix)[1] - 1
        token = ops.take(self.prefix, ops.minimum(position, last), axis=1)  # [batch]
        token = ops.repeat(token, num_beams, axis=0)[:, None]  # [batch * num_beams, 1]
        alone = ops.where(ops.equal(ops.arange(vocab, dtype="int32"), token), log_probs, -np.inf)
        return ops.where(token > 0, alone, free)

    def _with_slots(self, log_probs, free, pending):
        """`free`, with slots that are pending, `[batch * num_beams, 1]`, and no end before them."""
        vocab = last_axis(log_probs)
        bits = self._table(vocab, self.slot_ids, self.bits, "int32")
        ends = self._table(vocab, self.eos_ids, 1, "int32")
        free = ops.where(ops.bitwise_and(pending, bits) > 0, log_probs, free)
        return ops.where(ops.minimum(pending, ends) > 0, -np.inf, free)

    def _table(self, vocab, ids, values, dtype="float32"):
        """`[vocab]` values at some ids, and 0 at the others."""
        known = isinstance(vocab, int)
        table = np.zeros(vocab if known else self.greatest + 1, dtype)
        table[list(ids)] = values
        return table if known else ops.pad(table, [[0, vocab - len(table)]])


def _tensor(name, value, rank):
    """The value as an int32 tensor; raises a ValueError unless it has this rank."""
    value = ops.convert_to_tensor(value, dtype="int32")
    if len(value.shape) != rank:
        raise ValueError(f"{name} must have rank {rank}; received shape {tuple(value.shape)}")
    return value
