"""A part of the vocabulary, over which a search runs instead of all of it."""

from typing import NamedTuple

from keras import ops

from keras_tfmr.config import Tensor
from keras_tfmr.decoding.result import DecodingResult

# The indices of the special ids, and the first of other ones: slots come before the rest.
END, START, TOKENS = 1, 2, 3


class Shortlist(NamedTuple):
    """Ids of the vocabulary that a batch may need, and which of them each example may use.

    A search over a shortlist works with indices into it instead of ids. It takes `START` as its
    start id and `END` as its end id; `restored` turns the indices of its result into ids.

    A shortlist is made for a whole batch, so that the logits are one product. Each example may use
    its own ids only, so that its result does not depend on the others.

    The first three ids are padding, the end id and the start id. If the size is known at run time
    only, it must be a multiple of `topk.GROUP`.

    Fields:
        token_ids: int32 `[size]`.
        allowed: bool `[batch, size]`, which of them can be produced for an example.

    >>> allowed = ops.array([[False, True, False, True, True]])
    >>> shortlist = Shortlist(ops.array([0, 3, 2, 7, 9]), allowed)
    >>> np.array(shortlist.restored(DecodingResult([[[4, 1, 0]]], 0, 0, 0)).ids).tolist()
    [[[9, 3, 0]]]
    """

    token_ids: Tensor
    allowed: Tensor

    def select(self, examples: Tensor) -> "Shortlist":
        """The shortlist for some of the examples, int32 `[n]`."""
        return self._replace(allowed=ops.take(self.allowed, examples, axis=0))

    def restrict(self, logits: Tensor) -> Tensor:
        """float32 logits `[batch, beams, size]` with minus infinity where it is not allowed."""
        return ops.where(self.allowed[:, None], logits, -float("inf"))

    def restored(self, result: DecodingResult) -> DecodingResult:
        """The result of a search, its shortlist positions mapped back to token ids."""
        return result._replace(ids=ops.take(self.token_ids, result.ids))
