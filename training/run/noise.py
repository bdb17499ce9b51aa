"""The noise of dropout on TensorFlow, as a function of the place in the whole batch.

The same numbers of a row are dropped whichever worker computes it, and however many workers there
are: the noise depends on (seed, batch, dropout layer, row of the whole batch). There is no
generator whose state would have to be synchronised and saved in checkpoints.
"""

import threading

import tensorflow as tf

BLOCK = 16  # bytes that the generator gives at a time
PHILOX = 1


class RowNoise(threading.local):
    """Draws for all dropout layers of a model in training.

    `keras_tfmr.Dropout` layers draw by rows. Others (`keras.layers.Dropout`) get a different seed
    on each device, so that their noise depends on the number of devices.

    Args:
        seed: int.

    Reference: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3 (Philox).
    """

    def __init__(self, seed):
        self.seed = seed
        self.begin(0, 0)

    def begin(self, number, replica):
        """Starts a pass of the model over a batch.

        Args:
            number: Number of the batch, int64 scalar.
            replica: Index of this device among all that share it, int32 scalar.
        """
        self.number = tf.cast(number, "int64")
        self.replica = tf.cast(replica, "uint64")
        self.draws = 0  # layers draw in the same order in each pass

    def bytes(self, inputs):
        """uint8 of the shape of `inputs`, whose first axis are this device's rows."""
        seed = tf.stack([tf.constant(self.seed * 65536 + self._draw(), "int64"), self.number])
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        shape = tf.shape(inputs)
        count = tf.reduce_prod(shape[1:])
        blocks = (count + BLOCK - 1) // BLOCK  # in a row
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
        """A seed, as `keras.random.SeedGenerator.next` gives, but different on each device."""
        own = tf.cast(self.replica, "int64") * 1_000_003 + self.seed * 65536 + self._draw()
        return tf.stack([own, self.number])

    def _draw(self):
        self.draws += 1
        return self.draws
