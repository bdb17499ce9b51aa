"""Layers that are arguments of other layers: shared by several, or copied for each."""

import inspect

import keras


def shared(layer):
    """The serialised form of a layer that other layers hold too, with Keras's id of shared objects.

    Keras assigns the id when an object is serialised for the second time, and has copied the first
    result by then. Serialised twice here, the object has the id in all results.
    """
    keras.saving.serialize_keras_object(layer)
    return keras.saving.serialize_keras_object(layer)


def unbuilt(config):
    """The layer that was serialised to `config`, not built: the layer that uses it will build it.

    Otherwise the paths of its weights would lack that layer and differ from the saved ones.
    """
    return keras.saving.deserialize_keras_object({**config, "build_config": None})


def described(layer):
    """The serialised form of a layer that is copied, not shared; None for None."""
    return None if layer is None else keras.saving.serialize_keras_object(layer)


def given(part):
    """An argument that is a layer, a serialised layer or None, as a layer or None."""
    return unbuilt(part) if isinstance(part, dict) else part


def copy_of(layer, name, dtype):
    """A new layer with the same arguments, under another name and dtype policy.

    Reads the arguments from the layer's attributes of the same names, because serialising it would
    import TensorFlow on every backend.
    """
    names = inspect.signature(type(layer).__init__).parameters
    own = {n: getattr(layer, n) for n in names if n not in ("self", "args", "kwargs")}
    return type(layer)(**own, name=name, dtype=dtype)
