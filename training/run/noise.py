"""The noise of dropout on TensorFlow as a function of where a number stands in the whole batch.

Whichever worker computes a row, and however many workers there are, the row loses the same
numbers: the noise is drawn from (seed, batch, dropout layer, row of the whole batch), and no
generator has a state that would have to be the same everywhere or lie in a checkpoint.
"""

import threading

import tensorflow as tf

from keras_tfmr.layers import Dropout

BLOCK = 16  # bytes that one step of the generator gives
PHILOX = 1


class RowNoise(threading.local):
    """Draws for all dropout layers of a model in training.

    Layers of `keras_tfmr.Dropout` draw by rows. Others (`keras.layers.Dropout`) get a seed of
    their own on each device, so that their noise depends on how many devices there are.

    Args:
        model: Whose layers draw from it from now on.
        seed: int.

    Reference: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3 (Philox).
    """

    def __init__(self, model, seed):
        self.seed = seed
        self.begin(0, 0)
        for layer in model._flatten_layers():
            if isinstance(layer, Dropout):
                layer._bytes = self.bytes
            elif hasattr(layer, "seed_generator"):
                layer.seed_generator.next = self.next

    def begin(self, number, replica):
        """Begins a pass of the model over a batch.

        Args:
            number: Of the batch, int64 scalar.
            replica: Index of this device among all that share it, int32 scalar.
        """
        self.number = tf.cast(number, "int64")
        self.replica = tf.cast(replica, "uint64")
        self.draws = 0  # by the order of the layers, which is always the same

    def bytes(self, inputs):
        """uint8 of the shape of `inputs`, whose first axis are this device's rows."""
        seed = tf.stack([tf.constant(self.seed * 65536 + self._draw(), "int64"), self.number])
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        shape = tf.shape(inputs)
        count = tf.reduce_prod(shape[1:])
        blocks = (count + BLOCK - 1) // BLOCK  # of a row
        first = self.replica * tf.cast(shape[0] * blocks, "uint64")
        words = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=tf.stack([shape[0], blocks * (BLOCK // 4)]),
            key=key,
            counter=counter + tf.stack([first, tf.constant(0, "uint64")]),
            alg=PHILOX,
            dtype=tf.uint32,
        )
        drawn = tf.reshape(tf.bitcast(words, tf.uint8), [shape[0], blocks * BLOCK])
        return tf.reshape(drawn[:, :count], shape)

    def next(self, ordered=True):
        """What a `keras.random.SeedGenerator` gives, of its own for each device."""
        own = tf.cast(self.replica, "int64") * 1_000_003 + self.seed * 65536 + self._draw()
        return tf.stack([own, self.number])

    def _draw(self):
        self.draws += 1
        return self.draws
