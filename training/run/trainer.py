"""The `keras.Model` that `fit` trains: updates weighted by real tokens."""

import keras
import tensorflow as tf
from keras import ops

from keras_tfmr.losses import real_tokens, smoothed_cross_entropy
from keras_tfmr.metrics import TokenAccuracy
from training.run.optimizer import AveragedAdam


class Trainer(keras.Model):
    """Trains a translation model with `fit`.

    Every update follows the gradient of one number: the sum of the token losses of all its
    batches, on all its devices, divided by the number of their real tokens. Batches of a token
    budget differ in their real tokens, and a mean of means would weigh the tokens of a badly
    filled batch more.

    Args:
        model: A model `[source_ids, target_ids]` -> logits `[batch, target, vocab]`.
        averaged: A second model of the same config, which takes the averaged weights. A model of
            its own, so that to evaluate it never touches the weights in training.
        label_smoothing: As of `LabelSmoothedCrossEntropy`.
        clip_norm: Greatest global norm of an update's gradient; 0 for no limit.
        accumulate: Number of batches whose tokens make one update.
    """

    def __init__(self, model, averaged, *, label_smoothing=0.0, clip_norm=0.0, accumulate=1):
        super().__init__(name="trainer")
        self.model = model
        self.averaged = averaged
        self.label_smoothing = label_smoothing
        self.clip_norm = clip_norm
        self.accumulate = accumulate
        self.mean_loss = keras.metrics.Mean(name="loss")
        self.accuracy = TokenAccuracy()
        self.sums = self.token_sum = self.batches_in_sum = None
        self.share = self._zeros(())  # of the budget, for schedules that end with it

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    @property
    def metrics(self):
        return [self.mean_loss, self.accuracy]

    def prepare(self, optimizer):
        """Compiles for `fit`, with every variable that training needs made before the first step.

        Not by XLA: on a CPU it gains nothing, and it would compile each shape of batch anew.
        """
        if not isinstance(optimizer, AveragedAdam):
            raise TypeError(f"Expected an AveragedAdam. Received: {optimizer!r}")
        self.compile(optimizer=optimizer, jit_compile=False)
        weights = self.model.trainable_variables
        optimizer.build(weights)
        for average, weight in zip(optimizer.averages, weights, strict=False):
            average.assign(weight)
        if self.accumulate > 1:
            self.sums = [self._zeros(weight.shape) for weight in weights]
            self.token_sum, self.batches_in_sum = self._zeros(()), self._zeros(())
        self.built = True

    def _zeros(self, shape):
        return self.add_weight(shape=shape, initializer="zeros", dtype="float32", trainable=False)

    def train_step(self, data):
        inputs, labels = data
        weights = self.model.trainable_variables
        tokens = ops.sum(real_tokens(labels))
        with tf.GradientTape() as tape:
            logits = self.model(inputs, training=True)
            losses = smoothed_cross_entropy(labels, logits, self.label_smoothing)
            total = ops.sum(losses * real_tokens(labels))
        gradients = tape.gradient(total, [weight.value for weight in weights])
        if self.accumulate == 1:
            self._update(*self._over_devices(gradients, tokens))
        else:
            self._accumulate(gradients, tokens)
        self.mean_loss.update_state(ops.divide_no_nan(total, tokens), sample_weight=tokens)
        self.accuracy.update_state(labels, logits)
        return {"loss": self.mean_loss.result(), "accuracy": self.accuracy.result()}

    def _over_devices(self, gradients, tokens):
        """The sums over all devices that share the batch."""
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if self.distribute_strategy.num_replicas_in_sync == 1:
            return gradients, tokens
        context = tf.distribute.get_replica_context()
        *gradients, tokens = context.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, tokens])
        return gradients, tokens

    def _update(self, gradients, tokens):
        """One step of the optimizer by summed gradients of so many tokens."""
        scale = 1 / ops.maximum(tokens, 1)
        if self.clip_norm:
            norm = scale * tf.linalg.global_norm(gradients)
            scale *= ops.minimum(1.0, self.clip_norm / ops.maximum(norm, 1e-12))
        # The optimizer sums over devices once more, where all have the same by now.
        scale /= self.distribute_strategy.num_replicas_in_sync
        gradients = [gradient * scale for gradient in gradients]
        self.optimizer.apply(gradients, self.model.trainable_variables)

    def _accumulate(self, gradients, tokens):
        """Adds to the sums; every `accumulate`-th batch makes the update and clears them."""
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign_add(tf.convert_to_tensor(gradient))
        self.token_sum.assign_add(tokens)
        self.batches_in_sum.assign_add(1)

        def update():
            self._update([total.value for total in self.sums], self.token_sum.value)
            for variable in (*self.sums, self.token_sum, self.batches_in_sum):
                variable.assign(ops.zeros_like(variable))

        tf.cond(ops.equal(self.batches_in_sum, self.accumulate), update, lambda: None)

    def take_averages(self):
        """Copies the averaged weights into the `averaged` model; returns that."""
        averages = self.optimizer.averages or self.model.trainable_variables
        for weight, average in zip(self.averaged.trainable_variables, averages, strict=True):
            weight.assign(average)
        return self.averaged
