"""The base of the models here, which are built from a config when they are loaded from a file."""

import contextlib
from typing import Any, Self

import keras

from keras_tfmr.layers.saved_changes import change_inside, changes_inside
from keras_tfmr.models.transformer_config import ModelConfig


class ConfiguredModel:
    """Lets a functional model be rebuilt from its config when it is loaded from a file.

    Mixed into `keras.Model` by each class itself: Keras changes the bases of the class of a
    functional model, and of their bases.
    """

    config_class: type[ModelConfig]

    def get_config(self) -> dict[str, Any]:
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": self.dtype_policy.name,
            "trainable": self.trainable,
            "inside": changes_inside(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        with dtype_policy(config["dtype"]):
            model = cls(cls.config_class.from_dict(config["config"]), name=config["name"])
        if not config["trainable"]:
            model.trainable = False
        change_inside(model, config["inside"])
        return model


@contextlib.contextmanager
def dtype_policy(policy):
    """A context in which new layers have this dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
