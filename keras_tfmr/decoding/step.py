"""A search's view of a model: one step, and a state that follows the hypotheses."""

import abc
from collections.abc import Callable

from keras import ops, tree

from keras_tfmr import _checks
from keras_tfmr.compat import take
from keras_tfmr.config import Nested, Tensor


class DecodingStep(abc.ABC):
    """One more token for each hypothesis: all that a search knows of a model.

    A subclass must implement `next`. The defaults of the other methods suit a state whose leaves
    are `[rows, ...]`. The decoders also accept a plain function `step(tokens, state)`.

    Rows are the hypotheses of all examples: rows = batch * num_beams, the beams of an example side
    by side.

    Attributes:
        max_length: The number of tokens that can be decoded; None for any number. An int32 scalar
            if only the run of a graph knows it; hypotheses then end there.
        num_beams: The number of hypotheses that it was started for; None for any number.
        vocab_size: The number of token ids; None if only the log-probabilities show it. If given,
            ids outside are refused before the first token is fed.
        shrinks: Whether shapes may change during a search. If so, examples that have ended leave
            the batch, and the state may grow: the time depends on the lengths that are decoded, not
            on the greatest. What belongs to an example, such as its source, is then in the state.
            XLA and JAX need fixed shapes.

    >>> class Bigrams(DecodingStep):
    ...     table = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    ...     def next(self, tokens, state):
    ...         return ops.take(self.table, tokens, axis=0), state
    >>> from keras_tfmr.decoding import DecodingConfig, Examples, search
    >>> config = DecodingConfig(num_beams=1, max_length=4)
    >>> np.array(search(Bigrams(), (), config, Examples([0], eos_id=1)).ids).tolist()
    [[[2, 1, 0, 0]]]
    """

    max_length: Tensor | None = None
    num_beams: int | None = None
    vocab_size: int | None = None
    shrinks: bool = False

    @abc.abstractmethod
    def next(self, tokens: Tensor, state: Nested) -> tuple[Tensor, Nested]:
        """Decodes one more token.

        Args:
            tokens: int32 `[rows]`, the last token of each row.
            state: Nested tensors; dtypes stay the same, and shapes unless the step
                `shrinks`.

        Returns:
            float32 `[rows, vocab]`, the normalised log-probabilities of the next token, and the
            next state.
        """

    def unnormalised(self, tokens: Tensor, state: Nested) -> tuple[Tensor, Tensor, Nested]:
        """Like `next`, for a search that needs few of the log-probabilities.

        Returns:
            float32 `[rows, vocab]`; float32 `[rows, 1]`, to subtract from each row for its
            log-probabilities; and the next state. By default, the log-probabilities of `next` and
            zeros.
        """
        log_probs, state = self.next(tokens, state)
        return log_probs, ops.zeros_like(log_probs[..., :1]), state

    def reorder(self, state: Nested, rows: Tensor) -> Nested:
        """The state in which each row continues another row of its example, int32 `[rows]`.

        By default, takes these rows of every leaf, except leaves of rank 0.
        """
        for leaf in tree.flatten(state):
            if len(leaf.shape) and not _checks.fits(leaf.shape[0], rows.shape[0]):
                raise ValueError(
                    f"Each tensor of the state must have batch * num_beams={rows.shape[0]} rows; "
                    f"received shape {tuple(leaf.shape)}"
                )
        return select_rows(state, rows)

    def select_examples(self, state: Nested, examples: Tensor) -> Nested:
        """The state of some of the examples, int32 `[n]`; used if the step `shrinks`."""
        raise NotImplementedError(f"{type(self).__name__} shrinks, but has no `select_examples`")


StepFunction = Callable[[Tensor, Nested], tuple[Tensor, Nested]]


class FunctionStep(DecodingStep):
    """A plain function `step(tokens, state) -> (log_probs, state)` as a `DecodingStep`.

    Args:
        function: The function.
        max_length: The number of tokens that can be decoded; None for any number.
        num_beams: The number of hypotheses of an example; None for any number.
        vocab_size: The number of token ids; None if only the log-probabilities show it.

    Raises:
        TypeError: If it is not callable.
        ValueError: If a number is not positive.
    """

    def __init__(
        self, function: StepFunction, max_length: int | None = None, num_beams: int | None = None,
        vocab_size: int | None = None,
    ) -> None:  # fmt: skip
        if not callable(function):
            raise TypeError(
                "`step` must be a DecodingStep or a function step(tokens, state). "
                f"Received: {type(function).__name__}"
            )
        self.function = function
        if max_length is not None:
            self.max_length = _checks.integer("max_length", max_length)
        if num_beams is not None:
            self.num_beams = _checks.integer("num_beams", num_beams)
        if vocab_size is not None:
            self.vocab_size = _checks.integer("vocab_size", vocab_size)

    def next(self, tokens: Tensor, state: Nested) -> tuple[Tensor, Nested]:
        return self.function(tokens, state)


def select_rows(tensors, rows):
    """The given rows of every leaf of nested tensors; None and leaves of rank 0 are kept."""

    def select(leaf):
        return leaf if leaf is None or len(leaf.shape) == 0 else take(leaf, rows)

    return tree.map_structure(select, tensors)
