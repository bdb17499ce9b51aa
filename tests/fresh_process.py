"""What a process does that has built nothing, with models that another one saved."""

import gc


def start():
    import keras_tfmr.recurrent  # noqa: F401  registers these layers, and all others

    gc.freeze()  # Keras asks for a collection per quantised weight


def outputs(path, arrays):
    """Outputs of a saved model: a list of NumPy arrays."""
    import keras

    found = keras.tree.flatten(keras.models.load_model(path)(arrays))
    return [keras.ops.convert_to_numpy(keras.ops.cast(each, "float32")) for each in found]
