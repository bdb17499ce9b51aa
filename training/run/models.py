"""The model of a run, from its settings or from its config.json."""

import importlib

from keras_tfmr.precision import dtype_policy

KINDS = {  # name: module, config class, model class
    "transformer": ("keras_tfmr.models", "TransformerConfig", "TranslationModel"),
    "seq2seq": ("keras_tfmr.recurrent", "Seq2SeqConfig", "Seq2SeqModel"),
    "rnnsearch": ("keras_tfmr.recurrent", "RNNSearchConfig", "RNNSearchModel"),
    "convolutional": ("keras_tfmr.recurrent", "ConvolutionalConfig", "ConvolutionalModel"),
}


def make_config(settings, source_vocab, target_vocab):
    """The model config that a `TrainingConfig` asks for.

    Raises:
        ValueError: If a preset is unknown, or fields contradict each other.
    """
    config_class = _classes(settings.model)[0]
    recipe = settings.recipe
    given = {**settings.sizes(), "dropout_rate": settings.dropout_rate}
    fields = {
        **recipe.sizes,
        **{name: value for name, value in recipe.defaults().items() if name in given},
        **{name: value for name, value in given.items() if value is not None},
        "source_vocab": source_vocab,
        "target_vocab": target_vocab,
        "joint_vocab": settings.joint_vocab,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if settings.preset in config_class.presets:
        return config_class.preset(settings.preset, **fields)
    return config_class(**fields)


def make_model(kind, config, precision="float32"):
    """A new model.

    Args:
        kind: A key of `KINDS`.
        config: Its config, or the dictionary of one.
        precision: The dtype policy of its layers.
    """
    model_class = _classes(kind)[1]
    if isinstance(config, dict):
        config = read_config(kind, config)
    with dtype_policy(precision):
        return model_class(config)


def read_config(kind, fields):
    """The config of a kind of model, from its dictionary."""
    return _classes(kind)[0].from_dict(fields)


def _classes(kind):
    module, config_class, model_class = KINDS[kind]
    module = importlib.import_module(module)
    return getattr(module, config_class), getattr(module, model_class)
