"""Adam in one pass over each weight, with a moving average of the weights beside it."""

import keras
import tensorflow as tf
from keras import ops


class AveragedAdam(keras.optimizers.Adam):
    """Adam that also keeps the moving average of what it trains.

    The update is that of `keras.optimizers.Adam`, by TensorFlow's fused kernel: on a CPU, where
    an update is bound by memory, that takes half the time of a dozen elementwise ones.
    The average's decay grows as n / (n + 9) towards `average`, so that it is of use from the
    first steps on; it is part of the optimizer's variables.

    Args:
        learning_rate: A float or a schedule.
        average: Decay of the moving average; 0 for none (the average is then the weights).
        **options: Further arguments of `keras.optimizers.Adam`.

    Reference: Kingma and Ba 2015, Adam (arXiv 1412.6980), algorithm 1 in the form of the end of
    section 2; Polyak and Juditsky 1992 for averages.

    >>> optimizer = AveragedAdam(1e-3, average=0.999, beta_2=0.98, epsilon=1e-9)
    """

    def __init__(self, learning_rate, average=0.0, **options):
        super().__init__(learning_rate, **options)
        if not 0 <= average < 1:
            raise ValueError(f"`average` must be in [0, 1). Received: {average!r}")
        self.average = average
        self.averages = []

    def build(self, var_list):
        if self.built:
            return
        super().build(var_list)
        if self.average:
            self.averages = self.add_optimizer_variables(var_list, "average")

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        step = ops.cast(self.iterations, "float32") + 1
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=ops.power(self.beta_1, step),
            beta2_power=ops.power(self.beta_2, step),
            lr=ops.cast(learning_rate, "float32"),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),  # densifies the slices of an embedding
        )
        if self.average:
            average = self.averages[index].value
            decay = ops.minimum(self.average, (step - 1) / (step + 8))
            tf.raw_ops.ResourceApplyGradientDescent(
                var=average.handle, alpha=1 - decay, delta=average - variable
            )

    def get_config(self):
        return {**super().get_config(), "average": self.average}
