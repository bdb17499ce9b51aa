"""What a process does that has built nothing, with models that another one saved."""

import gc


def start():
    import keras  # noqa: F401  first, so that the package registers its classes

    import keras_tfmr  # noqa: F401

    gc.freeze()  # Keras asks for a collection per quantised weight


def outputs(path, arrays):
    """Outputs of a saved model: a list of NumPy arrays."""
    import keras

    found = keras.tree.flatten(keras.models.load_model(path)(arrays))
    return [keras.ops.convert_to_numpy(keras.ops.cast(each, "float32")) for each in found]
