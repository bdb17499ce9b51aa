"""Models of somebody's own, combined from our layers and others, for all tests that need one."""

import keras
from helpers import random, random_ids, randomize

from keras_tfmr.layers import Decoder, Encoder, LMHead, PositionalEmbedding
from keras_tfmr.models import TranslationModel

SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}


def of_ids(vocab=20, decoder=Decoder):
    """Of source and target ids; a Dense stands before the decoder, and another before the head."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context = Encoder(**SIZES, name="encoder")(PositionalEmbedding(vocab, 16)(source_ids))
    context = keras.layers.Dense(12, activation="tanh")(context)
    x = decoder(**SIZES, name="decoder")(PositionalEmbedding(vocab, 16)(target_ids), context)
    x = keras.layers.Dense(16, activation="tanh")(x)
    return randomized(TranslationModel([source_ids, target_ids], LMHead(vocab)(x)))


def of_pictures(vocab=20):
    """Of pictures `[batch, 8, 8, 3]` and target ids, whose encoder is a convolution."""
    pictures = keras.Input((8, 8, 3), name="pictures")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context = keras.layers.Conv2D(16, 4, 4, activation="tanh")(pictures)
    context = keras.layers.Reshape((4, 16), name="encoder")(context)
    x = Decoder(**SIZES, name="decoder")(PositionalEmbedding(vocab, 16)(target_ids), context)
    return randomized(TranslationModel([pictures, target_ids], LMHead(vocab)(x)))


def randomized(model):
    randomize(model)
    return model


def source_of(model, rows=3):
    """Pictures, or ids of different lengths, the last ones none at all."""
    if len(model.inputs[0].shape) == 4:
        return random(rows, 8, 8, 3)
    source = random_ids(rows, 6, vocab=20)
    source[1::3, 4:], source[2::3] = 0, 0
    return source


OWN = {"own layers": of_ids, "pictures": of_pictures}
