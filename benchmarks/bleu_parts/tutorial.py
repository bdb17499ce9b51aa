"""The TensorFlow tutorial's recipe: its layers, its schedule, its batches; our subwords.

Its own vocabularies were a download that no longer exists. Text stays cased, so that BLEU means
the same on every side. Decoding recomputes the prefix for every token, as the tutorial does, but
for a batch at a time; its time is not counted.
"""

import keras
import tensorflow as tf

from benchmarks.bleu_parts.corpus import Task
from benchmarks.tutorial_model import masked_loss, tutorial_model
from keras_tfmr import NoamSchedule, TransformerConfig

LONGEST = 48


def run(args):
    """Yields BLEU by minutes of training."""
    keras.utils.set_random_seed(1)
    task = Task(args)
    config = TransformerConfig.preset(
        "tutorial", source_vocab=task.vocab, target_vocab=task.vocab, joint_vocab=False
    )
    model = tutorial_model(config)
    optimizer = keras.optimizers.Adam(
        NoamSchedule(config.d_model, 4000), beta_1=0.9, beta_2=0.98, epsilon=1e-9
    )
    optimizer.build(model.trainable_variables)
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[ids, ids, ids])
    def update(source, fed, expected):
        with tf.GradientTape() as tape:
            loss = masked_loss(expected, model([source, fed], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function(input_signature=[ids])
    def decode(source):
        first = tf.fill([tf.shape(source)[0], 1], task.start)

        def extend(target):
            logits = model([source, target], training=False)[:, -1]
            chosen = tf.argmax(logits, axis=-1, output_type=tf.int32)
            return (tf.concat([target, chosen[:, None]], axis=1),)

        def unfinished(target):
            ended = tf.reduce_any(target == task.end, axis=1)
            return (tf.shape(target)[1] < LONGEST) & ~tf.reduce_all(ended)

        shape = (tf.TensorShape([None, None]),)
        return tf.while_loop(unfinished, extend, (first,), shape_invariants=shape)[0]

    yield from task.timed(update, task.as_they_come, decode)
