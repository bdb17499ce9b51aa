"""Keras's Adam, with a moving average that is useful early; on TensorFlow in fewer passes."""

import keras
from keras import ops


class Adam(keras.optimizers.Adam):
    """Keras's Adam, whose moving average of the weights is useful from the start.

    Its decay grows as n / (n + 9) over n updates up to `ema_momentum`. With Keras's constant 0.999
    the average still consists of the first weights after hundreds of updates.

    On TensorFlow, a weight is updated by one operation, `ResourceApplyAdam`. Keras's own update is
    a dozen, each of which reads and writes an array of the weight's size; JAX compiles them to one.

    Attributes:
        total_batches: A variable, of the optimizer so that JAX does not make it a constant: the
            `total_steps` of a `WarmupCosine`.
    """

    def __init__(self, learning_rate, **options):
        super().__init__(learning_rate, **options)
        self.total_batches = self.add_variable((), "zeros", "float32", name="total_batches")
        learning_rate.total_steps = self.total_batches

    def update_step(self, gradient, variable, learning_rate):
        if keras.backend.backend() != "tensorflow":
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        place, step = self._get_variable_index(variable), tf.cast(self.iterations + 1, "float32")
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[place].value.handle,
            v=self._velocities[place].value.handle,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(learning_rate, "float32"),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),
        )

    def _update_model_variables_moving_average(self, trainable_variables):
        updates = ops.cast(self.iterations, "float32")
        decay = ops.minimum(self.ema_momentum, updates / (updates + 9))
        # Keras calls this after each batch, not after each update.
        rate = 1 - decay ** (1 / (self.gradient_accumulation_steps or 1))
        averages = self._model_variables_moving_average
        for weight, average in zip(trainable_variables, averages, strict=True):
            average.assign(average + rate * (weight - average))
