"""What a process does that has built nothing, with models that another one saved."""

import gc


def start():
    import keras_tfmr.models
    import keras_tfmr.recurrent  # noqa: F401  now Keras knows the classes

    gc.freeze()  # Keras asks for a collection per quantised weight


def outputs(path, arrays):
    """Outputs of a saved model: a list of NumPy arrays."""
    import keras

    return flat(keras.models.load_model(path)(arrays))


def outputs_and_weights(path, arrays):
    """Also of each weight its name and its layer's, its dtype, whether it trains, its value."""
    import keras

    model = keras.models.load_model(path)
    return flat(model(arrays)), weights_of(model)


def weights_of(model):
    # The beginning of a path depends on whether Keras builds a sub-model before its model.
    names = ["/".join(weight.path.split("/")[-2:]) for weight in model.weights]
    return [
        (name, str(weight.dtype), weight.trainable, flat(weight.value)[0])
        for name, weight in zip(names, model.weights, strict=True)
    ]


def flat(tensors):
    import keras

    found = keras.tree.flatten(tensors)
    return [keras.ops.convert_to_numpy(keras.ops.cast(each, "float32")) for each in found]
