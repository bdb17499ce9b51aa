"""The examples of a batch: start ids, limits, prefixes, slots, and the special ids of a search."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Tensor

MOST_SLOTS = 31  # a bit of an int32 for each; the last one is its sign


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """The examples of a batch, and the constraints on their hypotheses.

    Args:
        bos_ids: int32 `[batch]`, the first token fed to the step; not part of the result.
        eos_id: The id that ends a hypothesis, or several such ids.
        banned_ids: Ids that are never produced, such as start and unknown; padding, 0, is always
            banned.
        prefix: int32 `[batch, p]`, padded with 0: tokens that every hypothesis begins with. Each is
            taken as it is, even if it is banned; an end id among them ends nothing.
        prompt: int32 `[batch, p]`, padded with 0: tokens that are fed before a hypothesis begins.
            They enter neither its ids nor its length nor its score. Not with `prefix` or `slots`.
        max_lengths: int32 `[batch]`, the maximum length of each example, at most that of the
            config; 0 for one not to be decoded.
        slot_ids: Up to 31 ids that are produced only as `slots` says.
        slots: int32 `[batch]`: where bit i is set, every hypothesis of the example produces
            `slot_ids[i]` once before it ends; where it is not, never. A hypothesis that reaches its
            limit may lack some.

    Raises:
        ValueError: If a shape, a dtype, or an id or number whose value is known is out of range.

    >>> Examples(bos_ids=[2, 2], eos_id=3, max_lengths=[8, 9, 9])
    Traceback (most recent call last):
    ...
    ValueError: `max_lengths` must have shape [batch=2]. Received: shape (3,)
    """

    bos_ids: Tensor
    eos_id: int | Sequence[int]
    banned_ids: Sequence[int] = ()
    prefix: Tensor | None = None
    prompt: Tensor | None = None
    max_lengths: Tensor | None = None
    slot_ids: Sequence[int] = ()
    slots: Tensor | None = None

    def __post_init__(self) -> None:
        eos_ids: Any = self.eos_id if np.ndim(self.eos_id) else (self.eos_id,)
        eos_ids = _checks.token_ids("eos_id", eos_ids, 1)  # 0 is padding
        banned_ids = _checks.token_ids("banned_ids", self.banned_ids, 0)
        slot_ids = _checks.token_ids("slot_ids", self.slot_ids, 1)
        if not eos_ids:
            raise ValueError("eos_id must be an id or several; received none")
        others = {*slot_ids} - {*eos_ids, *banned_ids}
        if len(others) < len(slot_ids) or len(slot_ids) > MOST_SLOTS:
            raise ValueError(
                f"slot_ids must be up to {MOST_SLOTS} different ids, none of them in eos_id or "
                f"banned_ids; received slot_ids={slot_ids}, eos_id={eos_ids}, "
                f"banned_ids={banned_ids}"
            )
        if (self.slots is None) == bool(slot_ids):
            raise ValueError(
                "slots must be given for slot_ids, and for nothing else; received "
                f"slot_ids={slot_ids}, slots={self.slots}"
            )
        bos_ids = _checks.tensor("bos_ids", self.bos_ids, "int32", 0, _checks.LARGEST, batch=None)
        batch = bos_ids.shape[0]
        fields: dict[str, Any] = {
            "bos_ids": bos_ids,
            "eos_id": eos_ids,
            "banned_ids": banned_ids,
            "slot_ids": slot_ids,
        }
        if self.prompt is not None and not (self.prefix is None and self.slots is None):
            other = "slots" if self.prefix is None else "a prefix"
            raise ValueError(f"A prompt goes with neither a prefix nor slots; received {other} too")
        for name in ("prefix", "prompt"):
            if (ids := getattr(self, name)) is not None:
                fields[name] = _checks.padded_ids(name, ids, batch=batch, length=None)
        for name, most in (("max_lengths", _checks.LARGEST), ("slots", 2 ** len(slot_ids) - 1)):
            if (value := getattr(self, name)) is not None:
                fields[name] = _checks.tensor(name, value, "int32", 0, most, batch=batch)
        for name, value in fields.items():
            object.__setattr__(self, name, value)  # the way to set a field of a frozen dataclass


def banned_ids(tokenizer: Any) -> tuple[int, ...]:
    """The ids that a text of a tokenizer cannot hold, for `Examples`."""
    return (tokenizer.unknown_id, tokenizer.bos_id, *tokenizer.slot_like_ids)


def slots_due(
    source_ids: Tensor, source_slot_ids: Sequence[int], target_slot_ids: Sequence[int]
) -> dict[str, Any]:
    """The `slot_ids` and `slots` of `Examples`: each slot of a source comes in its translation.

    Args:
        source_ids: int32 `[batch, source]`.
        source_slot_ids, target_slot_ids: The ids of each slot in source and target. Where one of
            them has none, there are no slots, and the result is empty.

    >>> np.array(slots_due(np.array([[9, 5], [9, 6]]), (8, 9), (3, 4))["slots"]).tolist()
    [2, 2]
    """
    if not source_slot_ids or not target_slot_ids:
        return {}
    if len(source_slot_ids) != len(target_slot_ids):
        raise ValueError(
            "Source and target must have the same slots; received "
            f"{len(source_slot_ids)} source_slot_ids and {len(target_slot_ids)} target_slot_ids"
        )
    source_ids = _checks.tensor(
        "source_ids", source_ids, "int32", 0, _checks.LARGEST, batch=None, source=None
    )
    slots = np.array(_checks.token_ids("source_slot_ids", source_slot_ids, 1), "int32")
    occurs = ops.any(ops.equal(source_ids[:, :, None], slots), axis=1)  # [batch, slots]
    due = ops.where(occurs, 2 ** np.arange(len(slots), dtype="int32"), np.int32(0))
    return {"slot_ids": target_slot_ids, "slots": ops.sum(due, axis=1)}
