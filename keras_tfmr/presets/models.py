"""The entry `model` of config.json: written for a model, and read as one."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_tfmr import models, recurrent
from keras_tfmr.config import Config
from keras_tfmr.errors import PresetError
from keras_tfmr.presets.registered import registered_name
from keras_tfmr.recurrent.seq2seq import RecurrentTranslator


def ready_entry(made_by: Callable, config: Config, **arguments: Any) -> dict[str, Any]:
    """The entry of a ready model.

    Args:
        made_by: The function or class that makes it, such as `Transformer`.
        config: The config that it is made from.
        arguments: The other arguments, such as `num_classes`.
    """
    return {"made_by": registered_name(made_by), "config": config.to_dict(), **arguments}


def entry_of(model: keras.Model) -> dict[str, Any]:
    """The entry of any model: that of a ready one, or Keras's own description.

    The config of a ready model is enough only if a new model of it has the same layers. They differ
    if some were frozen, for example, since the model was made.
    """
    config, arguments = getattr(model, "config", None), {"name": model.name}
    if config is None:
        return keras_entry(model)
    if isinstance(model, RecurrentTranslator):
        made_by = type(model)
    elif isinstance(model, models.TranslationModel):
        made_by = models.Transformer
    elif isinstance(model, models.LanguageModel):
        made_by = models.TransformerLanguageModel
    else:
        made_by = models.TransformerClassifier
        arguments["num_classes"] = model.output_shape[-1]
    ready = ready_entry(made_by, config, **arguments)
    if _layers(model_of(ready)) == _layers(model):
        return ready
    return keras_entry(model)


def keras_entry(model: keras.Model) -> dict[str, Any]:
    """Keras's own description of a model."""
    entry = keras.saving.serialize_keras_object(model)
    entry.pop("compile_config", None)
    return entry


def _layers(model):
    """{name of a layer: its config}."""
    return {layer.name: layer.get_config() for layer in model.layers}


def model_of(entry: Mapping[str, Any]) -> keras.Model:
    """The model of an entry, with new weights in float32.

    Raises:
        PresetError: If a name is unknown, or a field is unknown, missing or out of range.
    """
    try:
        if "made_by" not in entry:
            return keras.saving.deserialize_keras_object(entry)
        arguments = dict(entry)
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
