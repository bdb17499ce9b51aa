"""What is asked of a search: lengths, stop ids, banned ids, a forced prefix."""

import copy

import numpy as np
from keras import ops

from keras_tfmr.decoding.result import length_penalty, lengths_of
from keras_tfmr.decoding.topk import last_axis


def check_lengths(options):
    """Raises a ValueError if a length or penalty of a `Task` or a config is out of range."""
    longest, shortest, alpha = options.max_length, options.min_length, options.length_penalty
    if longest < 1:
        raise ValueError(f"max_length must be at least 1; received {longest}")
    if not 0 <= shortest <= longest:
        raise ValueError(
            f"min_length must lie between 0 and max_length={longest}; received {shortest}"
        )
    if not alpha >= 0:
        # The early exit relies on a length penalty that does not fall with the length.
        raise ValueError(f"length_penalty must not be negative; received {alpha}")
    if not 0 <= options.length_penalty_offset < np.inf:
        raise ValueError(
            "length_penalty_offset must be finite and not negative; "
            f"received {options.length_penalty_offset}"
        )


def check_sequences(num_return_sequences, num_beams):
    """Raises a ValueError unless so many hypotheses can be returned from so many beams."""
    if not 1 <= num_return_sequences <= num_beams:
        raise ValueError(
            f"num_return_sequences must lie between 1 and num_beams={num_beams}; "
            f"received {num_return_sequences}"
        )


class Task:
    """The options that all decoders share, checked, and for each example its own.

    Args: as for `beam_search`.

    Raises:
        ValueError: If one is out of range.
    """

    def __init__(
        self, *, bos_ids, eos_id, max_length, min_length=0, length_penalty=0.0,
        length_penalty_offset=5.0, banned_ids=(), prefix=None, max_lengths=None,
    ):  # fmt: skip
        self.max_length, self.min_length = max_length, min_length
        self.length_penalty, self.length_penalty_offset = length_penalty, length_penalty_offset
        check_lengths(self)
        self.eos_ids = (eos_id,) if np.ndim(eos_id) == 0 else tuple(eos_id)
        if not self.eos_ids or min(self.eos_ids) < 1:
            raise ValueError(f"eos_id must be at least 1 (0 is padding); received {eos_id}")
        if any(banned < 0 for banned in banned_ids):
            raise ValueError(f"banned_ids must not be negative; received {tuple(banned_ids)}")
        self.banned_ids = sorted({0, *banned_ids})
        self.bos_ids = _tensor("bos_ids", bos_ids, 1)  # [batch]
        if max_lengths is None:
            max_lengths = ops.zeros_like(self.bos_ids) + max_length
        self.max_lengths = ops.clip(_tensor("max_lengths", max_lengths, 1), 0, max_length)
        self.prefix = prefix
        if prefix is not None:
            # A last column of padding, for all the positions after the prefix.
            self.prefix = ops.pad(_tensor("prefix", prefix, 2), [[0, 0], [0, 1]])  # [batch, p + 1]

    def select(self, examples):
        """The task of some of the examples, int32 `[n]`."""
        task = copy.copy(self)
        task.bos_ids = ops.take(self.bos_ids, examples, axis=0)
        task.max_lengths = ops.take(self.max_lengths, examples, axis=0)
        if self.prefix is not None:
            task.prefix = ops.take(self.prefix, examples, axis=0)
        return task

    def penalty(self, lengths):
        """The length penalty by which a log-probability is divided."""
        return length_penalty(lengths, self.length_penalty, self.length_penalty_offset)

    def ends(self, tokens):
        """bool of the shape of `tokens`: which of them end a hypothesis."""
        if len(self.eos_ids) == 1:
            return ops.equal(tokens, self.eos_ids[0])
        return ops.any(ops.equal(tokens[..., None], np.array(self.eos_ids, "int32")), axis=-1)

    def constrain(self, log_probs, position, num_beams=1):
        """Minus infinity for tokens that must not come at the 0-based `position`.

        Nothing is renormalised: the other tokens keep the model's own log-probability, so the score
        of a hypothesis is the same whether it was searched for freely, forced or scored afterwards.
        Within the prefix only its token is allowed, even if it is banned.

        Args:
            log_probs: float32 `[batch * num_beams, vocab]`.
            position: int32 scalar.
        """
        vocab = last_axis(log_probs)
        greatest = max(*self.banned_ids, *self.eos_ids)
        if isinstance(vocab, int) and greatest >= vocab:
            raise ValueError(
                f"eos_id={self.eos_ids} and banned_ids={tuple(self.banned_ids)} must be below the "
                f"vocabulary size {vocab}"
            )
        some = vocab if isinstance(vocab, int) else greatest + 1
        bias = np.zeros(some, "float32")
        bias[self.banned_ids] = -np.inf
        if self.min_length > 1:
            early = bias.copy()
            early[list(self.eos_ids)] = -np.inf
            bias = ops.where(position + 1 < self.min_length, early, bias)
        if some is not vocab:
            bias = ops.pad(bias, [[0, vocab - some]])
        free = ops.add(log_probs, bias)
        if self.prefix is None:
            return free
        last = ops.shape(self.prefix)[1] - 1
        token = ops.take(self.prefix, ops.minimum(position, last), axis=1)  # [batch]
        token = ops.repeat(token, num_beams, axis=0)[:, None]  # [batch * num_beams, 1]
        alone = ops.where(ops.equal(ops.arange(vocab, dtype="int32"), token), log_probs, -np.inf)
        return ops.where(token > 0, alone, free)


def forced_lengths(bos_ids, prefix):
    """The number of tokens in the prefix of each example, int32 `[batch]`."""
    none = ops.zeros_like(bos_ids)
    if prefix is None:
        return none
    return none + lengths_of(ops.convert_to_tensor(prefix, dtype="int32"))


def _tensor(name, value, rank):
    """The value as an int32 tensor; raises a ValueError unless it has this rank."""
    value = ops.convert_to_tensor(value, dtype="int32")
    if len(value.shape) != rank:
        raise ValueError(f"{name} must have rank {rank}; received shape {tuple(value.shape)}")
    return value
