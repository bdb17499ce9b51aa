"""Layers that hold a layer which others hold too."""

import keras


def shared(layer):
    """The serialised form of a layer, by which a saved model knows it for the same one again.

    Keras gives a shared object its id at its second mention, and by then has copied the first:
    mentioned twice here, it has the id everywhere.
    """
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)
