"""Layers given to other layers: shared by several, or copied for each."""

import inspect

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
    """The serialised form of a layer that is copied, not shared, or None."""
    return None if layer is None else keras.saving.serialize_keras_object(layer)


def given(part):
    """A layer that was given as an argument, itself or serialised, or None."""
    return unbuilt(part) if isinstance(part, dict) else part


def copy_of(layer, name, dtype):
    """A new layer like this one, under another name and dtype policy.

    By its arguments, which every layer keeps in attributes of their names: to serialise it would
    import TensorFlow on every backend.
    """
    names = inspect.signature(type(layer).__init__).parameters
    own = {n: getattr(layer, n) for n in names if n not in ("self", "args", "kwargs")}
    return type(layer)(**own, name=name, dtype=dtype)
