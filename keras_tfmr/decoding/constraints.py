"""Constraints on the tokens of a search: lengths, stop ids, banned ids, prefixes and slots."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.compat import take
from keras_tfmr.decoding.result import length_penalty, lengths_of
from keras_tfmr.decoding.topk import last_axis


class Limits(NamedTuple):
    """The limits of each example of a batch, which travel with its hypotheses."""

    max_lengths: Any  # int32 [batch]; in beam search [batch, 1]
    prefix: Any  # int32 [batch, p + 1], padded with 0; or ()
    prefix_lengths: Any  # int32 [batch]; or ()
    prompt: Any  # int32 [batch, p + 1], padded with 0; or ()
    prompt_lengths: Any  # int32 [batch]; or ()


def limits_of(config, examples, room=None):
    """The `Limits` of `Examples`.

    Args:
        config: A `DecodingConfig`.
        examples: The `Examples`.
        room: The number of tokens that the step has room for, if it is known in a run only: an
            int32 scalar.

    Raises:
        ValueError: If a maximum length is greater than that of the config.
    """
    longest, max_lengths = config.max_length, examples.max_lengths
    if max_lengths is None:
        max_lengths = ops.zeros_like(examples.bos_ids) + longest
    max_lengths = _checks.values("max_lengths", max_lengths, "int32", 0, longest)
    max_lengths = ops.clip(max_lengths, 0, longest)
    prefix, prefix_lengths = _forced(examples.prefix)
    prompt, prompt_lengths = _forced(examples.prompt)
    if room is not None:
        max_lengths = ops.minimum(
            max_lengths, room if examples.prompt is None else room - prompt_lengths
        )
    return Limits(max_lengths, prefix, prefix_lengths, prompt, prompt_lengths)


def _forced(ids):
    """A prefix or a prompt with a last column of padding, for all later positions; its lengths."""
    return ((), ()) if ids is None else (ops.pad(ids, [[0, 0], [0, 1]]), lengths_of(ids))


class Constraints:
    """The constraints that are the same for all examples, applied to the tensors of a search.

    Args:
        config: A `DecodingConfig`.
        examples: The `Examples`.
    """

    def __init__(self, config, examples):
        self.config = config
        self.eos_ids, self.slot_ids = examples.eos_id, examples.slot_ids
        self.banned_ids = sorted({0, *examples.banned_ids})
        self.has_prefix, self.has_prompt = examples.prefix is not None, examples.prompt is not None
        self.bits = 2 ** np.arange(len(self.slot_ids), dtype="int32")
        self.greatest = max(*self.banned_ids, *self.eos_ids, *self.slot_ids)
        self.asked = {}  # the greatest id of each argument, where it is known
        for name in ("bos_ids", "eos_id", "banned_ids", "slot_ids", "prefix", "prompt"):
            ids = _checks.known(getattr(examples, name))
            if ids is not None and ids.size:
                self.asked[name] = ids.max()

    def check_ids(self, vocab):
        """A ValueError if an id is not in a vocabulary of this size."""
        for name, greatest in self.asked.items():
            if greatest >= vocab:
                raise ValueError(
                    f"{name} must be below the vocabulary size {vocab}; received {greatest}"
                )

    def remaining(self, pending, tokens):
        """The slots that are still to come after these tokens, int32 of their shape; or ()."""
        if not self.slot_ids:
            return ()
        left = np.full(self.greatest + 2, -1, "int32")  # the bits that stay, by token
        left[list(self.slot_ids)] = ~self.bits
        left = take(left, ops.minimum(tokens, len(left) - 1))
        return ops.bitwise_and(pending, left)

    def penalty(self, lengths):
        """The length penalty, by which a log-probability is divided."""
        return length_penalty(
            lengths, self.config.length_penalty, self.config.length_penalty_offset
        )

    def ends(self, tokens, length, limits):
        """Which tokens end a hypothesis of a length, bool of the shape of `tokens`.

        A prefix ends nothing: what follows it must not depend on how much of a prompt was read
        before the search.

        Args:
            tokens: int32 `[batch]` or `[batch, n]`, the last tokens.
            length: The number of tokens with these: of `place`, plus 1.
            limits: The `Limits`.
        """
        if len(self.eos_ids) == 1:
            ends = ops.equal(tokens, self.eos_ids[0])
        else:
            ends = ops.any(ops.equal(tokens[..., None], np.array(self.eos_ids, "int32")), axis=-1)
        if self.has_prefix:
            behind = self.behind_prefix(length, limits) > 0  # [batch]
            ends = ends & (behind if len(tokens.shape) == 1 else behind[:, None])
        if self.has_prompt:
            length = length if len(tokens.shape) == 1 else length[:, None]
            ends = ends & (length > 0)
        return ends | (length >= limits.max_lengths)

    def place(self, position, limits):
        """The place in the hypothesis of the token at a position, counted with the prompt.

        Args:
            position: int32 scalar.
            limits: The `Limits`.

        Returns:
            The same scalar; with prompts int32 `[batch]`, below 0 within the prompt.
        """
        return position - limits.prompt_lengths if self.has_prompt else position

    def of_prompt(self, position, limits):
        """The tokens int32 `[batch]` of the prompts at a position; 0 behind a prompt."""
        last = ops.shape(limits.prompt)[1] - 1
        return ops.take(limits.prompt, ops.minimum(position, last), axis=1)

    def behind_prefix(self, position, limits):
        """A position, a scalar or `[batch]`, counted from the end of the prefix: 0 is the next."""
        return position - limits.prefix_lengths if self.has_prefix else position

    def constrain(self, values, place, pending, limits):
        """Sets tokens that must not come at the 0-based `place` to minus infinity.

        Nothing is renormalised: the other tokens keep the model's own log-probability, so the score
        of a hypothesis is the same whether it was searched for freely, forced or scored afterwards.
        Within the prefix only its token is allowed, even if it is banned.

        Args:
            values: float32 `[batch * num_beams, vocab]`, log-probabilities, normalised or not.
            place: Of `place`.
            pending: int32 `[batch, num_beams]`, a bit for each slot that is still to come; or ().
            limits: The `Limits`.
        """
        vocab = self._checked_vocab(values, limits.max_lengths.shape[0])
        banned = [*self.banned_ids, *self.slot_ids]
        bias = self._table(vocab, banned, -np.inf)
        if self.config.min_length > 1:
            early = self._table(vocab, [*banned, *self.eos_ids], -np.inf)
            if self.has_prompt:
                place = ops.repeat(place, self.config.num_beams, axis=0)[:, None]
            bias = ops.where(place + 1 < self.config.min_length, early, bias)
        free = ops.add(values, bias)  # [batch * num_beams, vocab]
        if self.slot_ids:  # examples without slots pay for one comparison only
            free = ops.cond(
                ops.any(pending > 0),
                lambda: self._with_slots(values, free, ops.reshape(pending, (-1, 1))),
                lambda: free,
            )
        if not self.has_prefix:
            return free
        last = ops.shape(limits.prefix)[1] - 1
        token = ops.take(limits.prefix, ops.minimum(place, last), axis=1)  # [batch]
        token = ops.repeat(token, self.config.num_beams, axis=0)[:, None]  # [batch * num_beams, 1]
        alone = ops.where(ops.equal(ops.arange(vocab, dtype="int32"), token), values, -np.inf)
        return ops.where(token > 0, alone, free)

    def _checked_vocab(self, values, batch):
        """The size of the vocabulary; a ValueError if rows are missing or ids are not in it."""
        rows = batch * self.config.num_beams if isinstance(batch, int) else None
        _checks.shaped("the step's log-probabilities", values, rows=rows, vocab=None)
        vocab = last_axis(values)
        if isinstance(vocab, int):
            self.check_ids(vocab)
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
