"""The interface between a search and a model: one more token for each row."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

from keras import ops, tree

from keras_tfmr._types import Nested, Tensor


class DecodingStep(abc.ABC):
    """The function that a search calls at each step: from last tokens to log-probabilities.

    A subclass must implement the call. The other methods have defaults, which suit a state whose
    leaves are `[rows, ...]`. The decoders also accept a plain function `step(tokens, state)`.

    Rows are the hypotheses of all examples: rows = batch * beams, the beams of an example side by
    side.

    Attributes:
        max_length: The number of tokens that can be decoded; None for any number.
        shrinks: Whether shapes may change in the loop. If so, every few steps the state is given
            room for the next ones, and examples that have ended leave the batch.
        rooms: If not, lengths, ascending and ending in `max_length`, for which the state is given
            room one after the other; None for a state that does not grow. If the time of a step
            depends on the room in its state, filled or not, this keeps the room small.

    >>> class Bigrams(DecodingStep):
    ...     table = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    ...     def __call__(self, tokens, state):
    ...         return ops.take(self.table, tokens, axis=0), state
    >>> from keras_tfmr.decoding import greedy
    >>> np.array(greedy(Bigrams(), (), start_ids=[0], end_id=1, max_length=4).ids).tolist()
    [[[2, 1, 0, 0]]]
    """

    max_length: int | None = None
    shrinks: bool = False
    rooms: Sequence[int] | None = None

    @abc.abstractmethod
    def __call__(self, tokens: Tensor, state: Nested) -> tuple[Tensor, Nested]:
        """Decodes one more token.

        Args:
            tokens: int32 `[rows]`, the last token of each row.
            state: Nested tensors; shapes and dtypes stay the same between two resizings.

        Returns:
            float32 `[rows, vocab]`, the normalised log-probabilities of the next token, and the
            next state.
        """

    def reorder(self, state: Nested, rows: Tensor) -> Nested:
        """The state in which each row continues another row of its example, int32 `[rows]`.

        By default, takes these rows of every leaf, except leaves of rank 0.
        """
        return take_rows(state, rows)

    def resize(self, state: Nested, room: Any) -> Nested:
        """The state with room for `room` tokens, an int, or an int32 scalar if the step `shrinks`.

        Needed if the step `shrinks` or has `rooms`.
        """
        raise NotImplementedError(f"{type(self).__name__} shrinks or has rooms, but no `resize`")

    def take(self, examples: Tensor) -> "DecodingStep":
        """The step for some of the examples, int32 `[n]`; needed if it `shrinks`."""
        raise NotImplementedError(f"{type(self).__name__} shrinks, but has no `take`")

    def keep(self, state: Nested, examples: Tensor) -> Nested:
        """The state of some of the examples, int32 `[n]`; needed if the step `shrinks`."""
        raise NotImplementedError(f"{type(self).__name__} shrinks, but has no `keep`")


StepFunction = Callable[[Tensor, Nested], tuple[Tensor, Nested]]


class FunctionStep(DecodingStep):
    """A plain function `step(tokens, state) -> (log_probs, state)` as a `DecodingStep`.

    Args:
        function: The function.
        max_length: The number of tokens that can be decoded; None for any number.
    """

    def __init__(self, function: StepFunction, max_length: int | None = None) -> None:
        self.function, self.max_length = function, max_length

    def __call__(self, tokens: Tensor, state: Nested) -> tuple[Tensor, Nested]:
        return self.function(tokens, state)


def as_step(step: DecodingStep | StepFunction) -> DecodingStep:
    """The step itself, or a function as a step; raises TypeError for anything else."""
    if isinstance(step, DecodingStep):
        return step
    if not callable(step):
        raise TypeError(
            "`step` must be a DecodingStep or a function step(tokens, state). "
            f"Received: {type(step).__name__}"
        )
    return FunctionStep(step)


def take_rows(state, rows):
    """The given rows of every leaf of nested tensors; None and leaves of rank 0 are kept."""

    def take(leaf):
        return leaf if leaf is None or len(leaf.shape) == 0 else ops.take(leaf, rows, axis=0)

    return tree.map_structure(take, state)
