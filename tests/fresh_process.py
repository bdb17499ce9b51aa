"""What a process does that has built nothing, with models that another one saved."""

import gc
import re


def start():
    import own_models  # noqa: F401  whose classes Keras knows now

    import keras_tfmr.recurrent  # noqa: F401  and its own

    gc.freeze()  # Keras asks for a collection per quantised weight


def outputs_and_weights(path, arrays):
    """Outputs of a saved model, a list of NumPy arrays, and what `weights_of` says of it."""
    import keras
    import own_models

    model = keras.models.load_model(path)
    return own_models.outputs_of(model, arrays), weights_of(model)


def weights_of(model):
    """Of each weight its name and its layer's, its dtype, whether it trains, its value."""
    # The beginning of a path depends on whether Keras builds a sub-model before its model, and the
    # numbers of the names that Keras makes on what it has built.
    names = ["/".join(weight.path.split("/")[-2:]) for weight in model.weights]
    names = [re.sub(r"_\d+(?=/)", "", name) for name in names]
    return [
        (name, str(weight.dtype), weight.trainable, flat(weight.value)[0])
        for name, weight in zip(names, model.weights, strict=True)
    ]


def flat(tensors):
    import keras

    found = keras.tree.flatten(tensors)
    return [keras.ops.convert_to_numpy(keras.ops.cast(each, "float32")) for each in found]
