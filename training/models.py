"""The models that a run can have, made from its settings or from its config.json."""

from keras_tfmr import models, recurrent
from keras_tfmr.precision import dtype_policy
from training.files import RunError

MODELS = {  # kind of model: the classes of its config and of itself
    "transformer": (models.TransformerConfig, models.TranslationModel),
    "seq2seq": (recurrent.Seq2SeqConfig, recurrent.Seq2SeqModel),
    "rnnsearch": (recurrent.RNNSearchConfig, recurrent.RNNSearchModel),
    "convolutional": (recurrent.ConvolutionalConfig, recurrent.ConvolutionalModel),
    "classify": (models.TransformerConfig, models.SequenceClassifier),
    "tag": (models.TransformerConfig, models.TokenClassifier),
    "masked": (models.TransformerConfig, models.TokenClassifier),
    "language": (models.TransformerConfig, models.LanguageModel),
}


def preset_of(kind, name):
    """The fields of a model's preset; none if the model has no preset of that name."""
    return MODELS[kind][0].presets.get(name, {})


def make_config(settings, source_vocab, target_vocab):
    """The model config that a resolved `TrainingConfig` asks for."""
    given = settings.sizes() | {"dropout_rate": settings.dropout_rate}
    fields = {
        **preset_of(settings.model, settings.preset),
        **{name: value for name, value in given.items() if value is not None},
        "source_vocab": source_vocab,
        "target_vocab": target_vocab,
        "joint_vocab": settings.joint_vocab,
    }
    return read_config(settings.model, fields)


def make_model(kind, config, classes=None, precision="float32"):
    """A new model.

    Args:
        kind: A key of `MODELS`.
        config: Its config, or the dictionary of one.
        classes: Number of classes of an encoder with labels.
        precision: The dtype policy of its layers.
    """
    if kind not in MODELS:
        raise RunError(f"Expected a run of one of {', '.join(MODELS)}. Received: a run of {kind}")
    if isinstance(config, dict):
        config = read_config(kind, config)
    with dtype_policy(precision):
        return MODELS[kind][1](config, *([classes] if classes else []))


def read_config(kind, fields):
    """The config of a kind of model; raises a RunError if its fields contradict each other."""
    try:
        return MODELS[kind][0].from_dict(fields)
    except ValueError as error:
        raise RunError(str(error)) from error
