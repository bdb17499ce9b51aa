"""The models of presets: how `config.json` describes one, and what is made of the description."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_tfmr import models, recurrent
from keras_tfmr.config import Config
from keras_tfmr.errors import PresetError
from keras_tfmr.presets.registered import registered_name
from keras_tfmr.recurrent.seq2seq import RecurrentTranslator


def described(made_by: Callable, config: Config, **arguments: Any) -> dict[str, Any]:
    """What config.json says of a ready model.

    Args:
        made_by: The function or class that makes it, such as `Transformer`.
        config: The config that it is made from.
        arguments: The other arguments, such as `num_classes`.
    """
    return {"made_by": registered_name(made_by), "config": config.to_dict(), **arguments}


def describe(model: keras.Model) -> dict[str, Any]:
    """What config.json says of a model: what makes it, and its config; else what Keras says of it.

    The config is not enough for a model of one's own, nor for one with layers that have changed
    since it was made: a new model of the config then has other layers.
    """
    if isinstance(model, RecurrentTranslator):
        ready = described(type(model), model.config)
    elif getattr(model, "config", None) is None:
        return as_keras_describes(model)
    elif isinstance(model, models.TranslationModel):
        ready = described(models.Transformer, model.config)
    elif isinstance(model, models.LanguageModel):
        ready = described(models.TransformerLanguageModel, model.config)
    else:
        num_classes = model.output_shape[-1]
        ready = described(models.TransformerClassifier, model.config, num_classes=num_classes)
    if _layers(read_model(ready)) == _layers(model):
        return ready
    return as_keras_describes(model)


def as_keras_describes(model: keras.Model) -> dict[str, Any]:
    """Keras's own description of a model, from which it makes a new one."""
    description = keras.saving.serialize_keras_object(model)
    description.pop("compile_config", None)
    return description


def _layers(model):
    """{name of a layer: what Keras says of it}."""
    return {layer.name: layer.get_config() for layer in model.layers}


def read_model(description: Mapping[str, Any]) -> keras.Model:
    """The model, with new weights in float32, of what `describe` gave.

    Raises:
        PresetError: If it names what does not exist, or something is missing or out of range.
    """
    try:
        if "made_by" not in description:
            return keras.saving.deserialize_keras_object(description)
        arguments = dict(description)
        made_by, config_class = _maker(arguments.pop("made_by"))
        config = config_class.from_dict(arguments.pop("config"))
        with recurrent.dtype_policy("float32"):
            return made_by(config, **arguments)
    except PresetError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise PresetError(f"model: {' '.join(str(error).split())}") from error


def _maker(name):
    """A function or class that makes a model of a config, and the class of that config."""
    made_by = keras.saving.get_registered_object(name)
    if isinstance(made_by, type) and issubclass(made_by, RecurrentTranslator):
        return made_by, made_by.config_class
    if made_by is None or isinstance(made_by, type):
        raise PresetError(
            f"model: unknown made_by {name!r}. Expected the registered name of a function or class "
            "that makes a model of a config, such as keras_tfmr>Transformer"
        )
    return made_by, models.TransformerConfig
