"""Layers given to other layers: shared by several, or copied for each."""

import keras


def shared(layer):
    """The serialised form of a layer that others hold too, by which a file knows it again.

    Keras gives a shared object its id at its second mention, and by then has copied the first:
    mentioned twice here, it has the id everywhere.
    """
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)


def unbuilt(config):
    """The layer that was serialised to `config`, still to be built by the layer that uses it.

    Built on its own, its weights would be named without that layer, unlike the ones saved.
    """
    return keras.saving.deserialize_keras_object({**config, "build_config": None})


def described(layer):
    """The serialised form of a layer that is copied, not shared; None and what is one stay."""
    if isinstance(layer, keras.layers.Layer):
        return keras.saving.serialize_keras_object(layer)
    return layer


def copy_of(description, name, dtype):
    """A new layer like the one described, under another name and dtype policy."""
    policy = keras.saving.serialize_keras_object(keras.dtype_policies.get(dtype))
    config = {**description["config"], "name": name, "dtype": policy}
    # While a file is loaded, what has the id of a shared object is that object again.
    rest = {key: value for key, value in description.items() if key != "shared_object_id"}
    return unbuilt({**rest, "config": config})
