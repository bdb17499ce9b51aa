"""The search: what it knows of a model, and the loop that adds one token after the other."""

import abc
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops, tree

from keras_tfmr.config import Nested, Tensor

# While the batch shrinks, examples that have ended leave it after this many steps,
STRETCH = 8
# or as soon as this many have ended: to leave costs a copy of the caches.
LEAVING = 16


class DecodingStep(abc.ABC):
    """One more token for each hypothesis: all that a search knows of a model.

    A subclass must implement `next`. The defaults of the other methods suit a cache whose leaves
    are `[rows, ...]`. The decoders also accept a plain function `step(tokens, cache)`.

    Rows are the hypotheses of all examples: rows = batch * num_beams, the beams of an example side
    by side.

    Attributes:
        max_length: The number of tokens that can be decoded; None for any number.
        shrinks: Whether shapes may change during a search. If so, examples that have ended leave
            the batch, and the cache grows: the time depends on the lengths that are decoded, not
            on the greatest. XLA and JAX need fixed shapes: set it to False before a search inside
            `tf.function(jit_compile=True)`.

    >>> class Bigrams(DecodingStep):
    ...     table = np.log(np.array([[.1, .1, .8], [.2, .2, .6], [.1, .7, .2]], "float32"))
    ...     def next(self, tokens, cache):
    ...         return ops.take(self.table, tokens, axis=0), cache
    >>> from keras_tfmr.decoding import greedy
    >>> np.array(greedy(Bigrams(), (), bos_ids=[0], eos_id=1, max_length=4).ids).tolist()
    [[[2, 1, 0, 0]]]
    """

    max_length: int | None = None
    shrinks: bool = False

    @abc.abstractmethod
    def next(self, tokens: Tensor, cache: Nested) -> tuple[Tensor, Nested]:
        """Decodes one more token.

        Args:
            tokens: int32 `[rows]`, the last token of each row.
            cache: Nested tensors; shapes and dtypes stay the same between two calls of `resize`.

        Returns:
            float32 `[rows, vocab]`, the normalised log-probabilities of the next token, and the
            next cache.
        """

    def reorder(self, cache: Nested, rows: Tensor) -> Nested:
        """The cache in which each row continues another row of its example, int32 `[rows]`.

        By default, takes these rows of every leaf, except leaves of rank 0.
        """
        return select_rows(cache, rows)

    def resize(self, cache: Nested, cache_size: Any) -> Nested:
        """The cache with room for so many tokens, an int32 scalar; used if the step `shrinks`."""
        raise NotImplementedError(f"{type(self).__name__} shrinks, but has no `resize`")

    def select_step(self, examples: Tensor) -> "DecodingStep":
        """The step for some of the examples, int32 `[n]`; used if it `shrinks`."""
        raise NotImplementedError(f"{type(self).__name__} shrinks, but has no `select_step`")

    def select_state(self, cache: Nested, examples: Tensor) -> Nested:
        """The cache of some of the examples, int32 `[n]`; used if the step `shrinks`."""
        raise NotImplementedError(f"{type(self).__name__} shrinks, but has no `select_state`")


StepFunction = Callable[[Tensor, Nested], tuple[Tensor, Nested]]


class FunctionStep(DecodingStep):
    """A plain function `step(tokens, cache) -> (log_probs, cache)` as a `DecodingStep`.

    Args:
        function: The function.
        max_length: The number of tokens that can be decoded; None for any number.
    """

    def __init__(self, function: StepFunction, max_length: int | None = None) -> None:
        self.function, self.max_length = function, max_length

    def next(self, tokens: Tensor, cache: Nested) -> tuple[Tensor, Nested]:
        return self.function(tokens, cache)


def select_rows(tensors, rows):
    """The given rows of every leaf of nested tensors; None and leaves of rank 0 are kept."""

    def select(leaf):
        return leaf if leaf is None or len(leaf.shape) == 0 else ops.take(leaf, rows, axis=0)

    return tree.map_structure(select, tensors)


def rows_of(examples, num_beams):
    """The rows of some examples, whose beams lie side by side: int32 `[n]` to `[n * num_beams]`."""
    rows = ops.add(examples[:, None] * num_beams, np.arange(num_beams, dtype="int32"))
    return ops.reshape(rows, (-1,))


class Search:
    """A loop that adds tokens to the hypotheses of a batch until all examples have ended.

    The hypotheses are nested tensors `[batch, ...]`. A subclass defines them, and
        `start()`: those before the first token;
        `extend(position, cache, hypotheses)`: all three after one more token;
        `unfinished(hypotheses)`: bool `[batch]`, which examples may still change;
        `result(hypotheses)`: the part of them that is the result;
        `prepare()`, optional: sets what all steps share.

    Args:
        step: A `DecodingStep` or a function.
        task: The `Task`.

    Raises:
        ValueError: If the task has a greater `max_length` than the step was started with.
    """

    def __init__(self, step, task):
        self.step, self.task = as_step(step), task
        room = self.step.max_length
        if room is not None and room < task.max_length:
            raise ValueError(
                f"The step was started for max_length={room} tokens; "
                f"received max_length={task.max_length}"
            )
        self.examples = ops.arange(ops.shape(task.bos_ids)[0], dtype="int32")  # [batch]
        self.prepare()

    def prepare(self):
        pass

    def select(self, examples):
        """The search for some of the examples of the whole batch, int32 `[n]`."""
        some = copy.copy(self)
        some.step, some.task = self.step.select_step(examples), self.task.select(examples)
        some.examples = examples
        some.prepare()
        return some

    def run(self, cache):
        """The result of the search that starts with this cache."""
        cache = tree.map_structure(ops.convert_to_tensor, cache)
        loop = ops.zeros((), "int32"), cache, self.start()
        if self.examples.shape[0] == 0:  # JAX cannot take rows of an empty batch
            return self.result(loop[2])
        if self.step.shrinks:
            return self._run_shrinking(*loop)
        return self.result(self._extend_while(*loop)[2])

    def _extend_while(self, *loop, end=None, few=0):
        """Adds tokens up to the position `end`, or until at most `few` examples are unfinished."""

        def going(position, cache, hypotheses):
            unfinished = ops.cast(self.unfinished(hypotheses), "int32")
            more = ops.sum(unfinished) > few
            return more if end is None else (position < end) & more

        return ops.while_loop(going, self.extend, loop)

    def _run_shrinking(self, position, cache, hypotheses):
        """Stretches of up to `STRETCH` steps, each for the examples that have not ended.

        Batch and cache size are known at run time only, so that one traced loop serves all.
        """

        def stretch(examples, position, cache, hypotheses, results):
            some, count = self.select(examples), ops.shape(examples)[0]
            end = ops.minimum((position // STRETCH + 1) * STRETCH, self.task.max_length)
            position, cache, hypotheses = some._extend_while(
                position,
                some.step.resize(cache, end),
                hypotheses,
                end=end,
                # ops.maximum would make it an integer of floatx's width.
                few=ops.where(count > LEAVING, count - LEAVING, np.int32(0)),
            )
            results = tree.map_structure(
                lambda old, new: ops.scatter_update(old, examples[:, None], new),
                results,
                some.result(hypotheses),
            )
            left = ops.nonzero(some.unfinished(hypotheses))[0]
            cache = some.step.select_state(cache, left)
            hypotheses = select_rows(hypotheses, left)
            return ops.take(examples, left, axis=0), position, cache, hypotheses, results

        examples = ops.nonzero(self.unfinished(hypotheses))[0]
        # A size that TensorFlow knows while it traces could not grow; it does not look in here.
        (none,) = ops.while_loop(lambda size: size < 0, lambda size: (size,), (position,))
        cache = self.step.select_state(self.step.resize(cache, none), examples)
        first = position, cache, select_rows(hypotheses, examples)
        loop = (examples, *first, self.result(hypotheses))
        return ops.while_loop(lambda left, *_: ops.shape(left)[0] > 0, stretch, loop)[-1]


def as_step(step):
    """The step itself, or a function as a step; raises TypeError for anything else."""
    if isinstance(step, DecodingStep):
        return step
    if not callable(step):
        raise TypeError(
            "`step` must be a DecodingStep or a function step(tokens, cache). "
            f"Received: {type(step).__name__}"
        )
    return FunctionStep(step)
