"""Prompts of several lengths: one pass reads what all have, and the search feeds the rest."""

from keras import ops

from keras_tfmr import _checks
from keras_tfmr.decoding.result import lengths_of


def checked_prompt(prompt, vocab_size):
    """Prompts int32 `[batch, length]`, each up to its first padding; or a ValueError."""
    prompt = _checks.padded_ids("prompt", prompt, vocab_size - 1, 1, batch=None, length=None)
    # Where no error can be raised, nothing comes behind padding.
    ended = ops.cumsum(ops.cast(ops.equal(prompt, 0), "int32"), axis=1) > 0
    return ops.where(ended, 0, prompt)


def shortest(prompt):
    """The number of tokens of the shortest prompt, at least 1; an int where it is known.

    Args:
        prompt: int32 `[batch, length]`, padded with 0 at the end.
    """
    known = _checks.known(prompt)
    if known is not None:
        return max(int((known != 0).sum(axis=1).min(initial=known.shape[1])), 1)
    return ops.maximum(ops.min(lengths_of(prompt)), 1)


def rest_of(prompt, index):
    """`bos_ids` `[batch]` and `prompt` `[batch, length - 1]` of `Examples`: those from an index."""
    length = ops.shape(prompt)[1]
    padded = ops.pad(prompt, [[0, 0], [0, length]])
    places = index + ops.arange(length, dtype="int32")
    rest = ops.take(padded, places, axis=1)  # [batch, length]
    return rest[:, 0], rest[:, 1:]


def behind_prompts(prompt, result):
    """A `DecodingResult` whose ids and lengths include the prompts int32 `[batch, length]`."""
    n, longest = result.ids.shape[1], result.ids.shape[2]
    before = lengths_of(prompt)[:, None, None]  # [batch, 1, 1]
    prompt = ops.pad(prompt, [[0, 0], [0, longest]])[:, None]  # [batch, 1, length + longest]
    columns = ops.arange(ops.shape(prompt)[2], dtype="int32") - before
    places = ops.repeat(ops.clip(columns, 0, longest - 1), n, axis=1)
    new = ops.take_along_axis(result.ids, places, axis=2)  # [batch, n, length + longest]
    ids = ops.where(columns < 0, prompt, ops.where(columns < longest, new, 0))
    found = result.lengths > 0  # [batch, n]
    lengths = ops.where(found, before[:, 0] + result.lengths, 0)
    return result._replace(ids=ops.where(found[:, :, None], ids, 0), lengths=lengths)
