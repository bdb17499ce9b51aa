"""A function called for one position after the other: `keras.layers.RNN` without a cell."""

import keras
from keras import ops


class _Cell:
    """A function in the form of a cell of `keras.layers.RNN`."""

    def __init__(self, step, state_size, dtype):
        self.step = step
        self.state_size = state_size
        self.compute_dtype = dtype

    def __call__(self, inputs, states):
        return self.step(inputs, states)

    # `keras.layers.RNN` checks that this name exists before it calls the cell.
    call = __call__


def over_time(step, sequence, states, dtype_policy, mask=None, go_backwards=False):
    """Calls `step(x_t, states) -> (output_t, states)` for every position of a sequence.

    The step may use any tensors and layers of its enclosing function. What does not depend on the
    states should be computed before or after the loop, as one product over all positions.

    Args:
        step: A function of `[batch, width]` and a list of states to an output `[batch, …]` and
            the next states.
        sequence: Tensor `[batch, length, width]`.
        states: List of tensors `[batch, …]`; all get the compute dtype of the policy.
        dtype_policy: The dtype policy of the layer that loops.
        mask: bool tensor `[batch, length]`; where it is False, output and states do not change. The
            output must then be the first state.
        go_backwards: Whether to go from the last position to the first.

    Returns:
        Tensor `[batch, length, …]`: the outputs, each at the position of its input.
    """
    if sequence.shape[1] == 0:  # one position more, because a loop of none has no outputs
        longer = ops.pad(sequence, [[0, 0], [0, 1], [0, 0]])
        return over_time(step, longer, states, dtype_policy)[:, :0]
    sizes = [state.shape[-1] for state in states]
    cell = _Cell(step, sizes, dtype_policy.compute_dtype)
    loop = keras.layers.RNN(
        cell, return_sequences=True, go_backwards=go_backwards, dtype=dtype_policy, name="loop"
    )
    outputs = loop.call(sequence, initial_state=states, mask=mask)
    return ops.flip(outputs, axis=1) if go_backwards else outputs
