"""The gated hidden unit, and the bidirectional encoder made of two of them."""

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.recurrent._loop import over_time


@keras.saving.register_keras_serializable(package="keras_tfmr")
class GatedUnit(keras.layers.Layer):
    """One step of the gated hidden unit (GRU) on projected inputs.

        r = σ(x_r + U_r s),  z = σ(x_z + U_z s),  s̃ = tanh(x_s + U [r ∘ s])
        s' = (1 − z) ∘ s + z ∘ s̃

    Args:
        units: Width of the state.

    Call arguments:
        x: Tensor `[rows, 3 * units]`: x_r, x_z and x_s side by side.
        state: Tensor `[rows, units]`.

    Returns:
        Tensor `[rows, units]`: the next state.

    Reference: Cho et al. 2014 (arXiv 1406.1078), as Bahdanau et al. 2015 (arXiv 1409.0473) use
    it, appendix A.1.1.

    >>> GatedUnit(4)(np.ones((2, 12), "float32"), np.ones((2, 4), "float32")).shape
    TensorShape([2, 4])
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.gates = self._recurrent(2 * units, "gates")
        self.candidate = self._recurrent(units, "candidate")

    def _recurrent(self, units, name):
        return keras.layers.Dense(
            units,
            use_bias=False,
            kernel_initializer="orthogonal",
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, x_shape, state_shape=None):
        self.gates.build((x_shape[0], self.units))
        self.candidate.build((x_shape[0], self.units))
        self.built = True

    def call(self, x, state):
        n = self.units
        gates = ops.sigmoid(x[:, : 2 * n] + self.gates(state))  # [rows, 2 * units]
        r, z = gates[:, :n], gates[:, n:]
        candidate = ops.tanh(x[:, 2 * n :] + self.candidate(r * state))
        return state + z * (candidate - state)

    def compute_output_shape(self, x_shape, state_shape):
        return state_shape

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="keras_tfmr")
class BidirectionalEncoder(keras.layers.Layer):
    """Annotations h_j = [→h_j ; ←h_j]: two loops of gated units, one from each end.

    Padding changes no state: the backward loop starts at the last real word, and position 0 of
    the backward half always holds its last state.

    Args:
        units: Width of a state in one direction.

    Call arguments:
        x: Tensor `[batch, source, width]`, embedded words.
        mask: bool tensor `[batch, source]`, True = valid; by default the Keras mask of `x`.

    Returns:
        Tensor `[batch, source, 2 * units]`.

    Raises:
        ValueError: If `units` is not positive or `x` is not a sequence of vectors.
        TypeError: If the mask is not bool.

    Reference: Bahdanau, Cho, Bengio 2015, Neural Machine Translation by Jointly Learning to
    Align and Translate (arXiv 1409.0473), section 3.2 and appendix A.2.1.

    >>> BidirectionalEncoder(4)(np.ones((2, 5, 3), "float32")).shape
    TensorShape([2, 5, 8])
    """

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = _checks.positive_int("units", units)
        self.forward_input = self._projection("forward_input")
        self.backward_input = self._projection("backward_input")
        self.forward_unit = GatedUnit(units, dtype=self.dtype_policy, name="forward")
        self.backward_unit = GatedUnit(units, dtype=self.dtype_policy, name="backward")
        self.supports_masking = True

    def _projection(self, name):
        return keras.layers.Dense(3 * self.units, dtype=self.dtype_policy, name=name)

    def build(self, x_shape):
        _checks.sequence_of_vectors("x", x_shape)
        for part in (self.forward_input, self.backward_input):
            part.build(x_shape)
        for part in (self.forward_unit, self.backward_unit):
            part.build((x_shape[0], 3 * self.units))
        self.built = True

    def call(self, x, mask=None):
        if mask is not None:
            mask = _checks.sequence_mask("mask", mask, x)
        halves = [
            self._direction(self.forward_input(x), self.forward_unit, mask, False),
            self._direction(self.backward_input(x), self.backward_unit, mask, True),
        ]
        return ops.concatenate(halves, axis=-1)  # [batch, source, 2 * units]

    def _direction(self, projected, unit, mask, go_backwards):
        def step(x, states):
            state = unit(x, states[0])
            return state, [state]

        start = ops.zeros_like(projected[:, 0, : self.units])  # [batch, units]
        return over_time(step, projected, [start], self.dtype_policy, mask, go_backwards)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], 2 * self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}
