"""What a search may not do: lengths, stop ids, banned ids, prefix and slots of each example."""

import copy

import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import take
from keras_tfmr.decoding.result import length_penalty, lengths_of
from keras_tfmr.decoding.step import select_rows
from keras_tfmr.decoding.topk import last_axis


class Constraints:
    """What a config and `Examples` allow, as operations on the tensors of a search.

    Args:
        config: A `DecodingConfig`.
        examples: The `Examples`.
        room: The number of tokens that the step has room for, if it is known in a run only: an
            int32 scalar.

    Raises:
        ValueError: If a maximum length is greater than that of the config.
    """

    def __init__(self, config, examples, room=None):
        self.config, longest = config, config.max_length
        self.eos_ids, self.slot_ids = examples.eos_id, examples.slot_ids
        self.banned_ids = sorted({0, *examples.banned_ids})
        self.bos_ids = examples.bos_ids  # [batch]
        limits = examples.max_lengths
        if limits is None:
            limits = ops.zeros_like(self.bos_ids) + longest
        limits = _checks.values("max_lengths", limits, "int32", 0, longest)
        self.max_lengths = ops.clip(limits, 0, longest)  # [batch]
        if room is not None:
            self.max_lengths = ops.minimum(self.max_lengths, room)
        self.prefix, self.prefix_lengths = examples.prefix, None
        if self.prefix is not None:
            self.prefix_lengths = lengths_of(self.prefix)  # [batch]
            # A last column of padding, for all the positions after the prefix.
            self.prefix = ops.pad(self.prefix, [[0, 0], [0, 1]])  # [batch, p + 1]
        self.slots = () if examples.slots is None else examples.slots  # [batch]
        self.bits = 2 ** np.arange(len(self.slot_ids), dtype="int32")
        self.greatest = max(*self.banned_ids, *self.eos_ids, *self.slot_ids)
        asked = {
            "bos_ids": _checks.known(examples.bos_ids),
            "eos_id": _checks.known(examples.eos_id),
            "banned_ids": _checks.known(examples.banned_ids),
            "slot_ids": _checks.known(examples.slot_ids),
            "prefix": _checks.known(examples.prefix),
        }
        self.asked = {  # the greatest id of each argument, where it is known
            name: ids.max() for name, ids in asked.items() if ids is not None and ids.size
        }

    def select(self, examples):
        """The constraints of some of the examples, int32 `[n]`."""
        some = copy.copy(self)
        some.bos_ids = take(self.bos_ids, examples)
        some.max_lengths = take(self.max_lengths, examples)
        if self.prefix is not None:
            some.prefix = take(self.prefix, examples)
            some.prefix_lengths = take(self.prefix_lengths, examples)
        some.slots = select_rows(self.slots, examples)
        return some

    def remaining(self, pending, tokens):
        """The slots that are still to come after these tokens, int32 of the same shape; or ()."""
        if not self.slot_ids:
            return ()
        left = np.full(self.greatest + 2, -1, "int32")  # the bits that stay, by token
        left[list(self.slot_ids)] = ~self.bits
        left = take(left, ops.minimum(tokens, len(left) - 1))
        return ops.bitwise_and(pending, left)

    def penalty(self, lengths):
        """The length penalty by which a log-probability is divided."""
        return length_penalty(
            lengths, self.config.length_penalty, self.config.length_penalty_offset
        )

    def ends(self, tokens, position):
        """bool of the shape of `tokens`, `[batch]` or `[batch, n]`: which end a hypothesis.

        A prefix ends nothing: what follows it must not depend on how much of a prompt was read
        before the search.
        """
        if len(self.eos_ids) == 1:
            ends = ops.equal(tokens, self.eos_ids[0])
        else:
            ends = ops.any(ops.equal(tokens[..., None], np.array(self.eos_ids, "int32")), axis=-1)
        if self.prefix is None:
            return ends
        behind = self.behind_prefix(position) >= 0  # [batch]
        return ends & (behind if len(tokens.shape) == 1 else behind[:, None])

    def behind_prefix(self, position):
        """A position, a scalar or `[batch]`, counted from the end of the prefix: 0 is the next."""
        return position if self.prefix is None else position - self.prefix_lengths

    def constrain(self, values, position, pending):
        """Minus infinity for tokens that must not come at the 0-based `position`.

        Nothing is renormalised: the other tokens keep the model's own log-probability, so the score
        of a hypothesis is the same whether it was searched for freely, forced or scored afterwards.
        Within the prefix only its token is allowed, even if it is banned.

        Args:
            values: float32 `[batch * num_beams, vocab]`, log-probabilities, normalised or not.
            position: int32 scalar.
            pending: int32 `[batch, num_beams]`, a bit for each slot that is still to come; or ().
        """
        vocab = self._checked_vocab(values)
        banned = [*self.banned_ids, *self.slot_ids]
        bias = self._table(vocab, banned, -np.inf)
        if self.config.min_length > 1:
            early = self._table(vocab, [*banned, *self.eos_ids], -np.inf)
            bias = ops.where(position + 1 < self.config.min_length, early, bias)
        free = ops.add(values, bias)  # [batch * num_beams, vocab]
        if self.slot_ids:  # examples without slots pay for one comparison only
            free = ops.cond(
                ops.any(pending > 0),
                lambda: self._with_slots(values, free, ops.reshape(pending, (-1, 1))),
                lambda: free,
            )
        if self.prefix is None:
            return free
        last = ops.shape(self.prefix)[1] - 1
        token = ops.take(self.prefix, ops.minimum(position, last), axis=1)  # [batch]
        token = ops.repeat(token, self.config.num_beams, axis=0)[:, None]  # [batch * num_beams, 1]
        alone = ops.where(ops.equal(ops.arange(vocab, dtype="int32"), token), values, -np.inf)
        return ops.where(token > 0, alone, free)

    def rows(self):
        """batch * num_beams, or None if the batch is known in a run only."""
        batch = self.bos_ids.shape[0]
        return batch * self.config.num_beams if isinstance(batch, int) else None

    def _checked_vocab(self, values):
        """The size of the vocabulary; a ValueError if the step gave something else, or ids do."""
        _checks.shaped("the step's log-probabilities", values, rows=self.rows(), vocab=None)
        vocab = last_axis(values)
        for name, greatest in self.asked.items():
            if isinstance(vocab, int) and greatest >= vocab:
                raise ValueError(
                    f"{name} must be below the vocabulary size {vocab}; received {greatest}"
                )
        return vocab

    def _with_slots(self, values, free, pending):
        """`free`, with slots that are pending, `[batch * num_beams, 1]`, and no end before them."""
        vocab = last_axis(values)
        bits = self._table(vocab, self.slot_ids, self.bits, "int32")
        ends = self._table(vocab, self.eos_ids, 1, "int32")
        free = ops.where(ops.bitwise_and(pending, bits) > 0, values, free)
        return ops.where(ops.minimum(pending, ends) > 0, -np.inf, free)

    def _table(self, vocab, ids, values, dtype="float32"):
        """`[vocab]` values at some ids, and 0 at the others."""
        known = isinstance(vocab, int)
        table = np.zeros(vocab if known else self.greatest + 1, dtype)
        table[list(ids)] = values
        return table if known else ops.pad(table, [[0, vocab - len(table)]])
