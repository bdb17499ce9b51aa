"""Classes and functions by the names under which Keras has registered them."""

from collections.abc import Callable
from typing import Any

import keras

from keras_tfmr.errors import PresetError


def registered_name(made: Callable) -> str:
    """The name by which a preset can find a class or function again.

    Raises:
        PresetError: If Keras does not know it.

    >>> from keras_tfmr import Transformer
    >>> registered_name(Transformer)
    'keras_tfmr>Transformer'
    """
    name = keras.saving.get_registered_name(made)
    if keras.saving.get_registered_object(name) is not made:
        raise PresetError(
            f"{made.__name__} needs a name that a preset can state: register it with "
            "keras.saving.register_keras_serializable"
        )
    return name


def registered_class(name: Any, kinds: type | tuple[type, ...], where: str) -> Any:
    """The class of a name.

    Args:
        name: The name that a preset states.
        kinds: A class or several; that of the name must be one of them, or made from one.
        where: The place of the name, for errors.

    Raises:
        PresetError: If there is no such class; it lists those that there are.
    """
    known = {
        each: found
        for each, found in keras.saving.get_custom_objects().items()
        if isinstance(found, type) and issubclass(found, kinds)
    }
    if name not in known:
        raise PresetError(
            f"{where}: unknown class_name {name!r}. Expected one of {', '.join(sorted(known))}, or "
            "a class of your own that was imported before"
        )
    return known[name]
