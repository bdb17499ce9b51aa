"""Texts as `tf.train.Example` messages, the requests of Classify and Regress.

Imports no Keras, because the check of an export must not.
"""

import tensorflow as tf

from keras_tfmr._inputs import utf8


def texts_of(examples):
    """The feature `text` of `tf.train.Example` messages, string [batch], for Classify and Regress.

    If an Example has no or more than one text, the whole batch fails; TensorFlow's error names the
    feature.
    """
    features = {"text": tf.io.FixedLenFeature([], tf.string)}
    return tf.io.parse_example(tf.ensure_shape(examples, [None]), features)["text"]


def example_of(text):
    """A text as a serialised `tf.train.Example`."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[utf8(text)]))
    example = tf.train.Example(features=tf.train.Features(feature={"text": feature}))
    return example.SerializeToString(deterministic=True)
