"""The classes and functions of `keras_tfmr` behind `--task` and `--model`, and the model's config.

Unlike the other files here, this one imports Keras and TensorFlow.
"""

from keras_tfmr import recurrent
from keras_tfmr.models import Transformer, TransformerConfig
from keras_tfmr.text_models.classifier import Classifier
from keras_tfmr.text_models.completer import Completer
from keras_tfmr.text_models.translator import Translator

TEXT_MODELS = {"translation": Translator, "classify": Classifier, "language": Completer}
# Of a translation: a class here has a config of its own, of its `config_class`.
RECURRENT = {
    "seq2seq": recurrent.Seq2SeqModel,
    "rnnsearch": recurrent.RNNSearchModel,
    "convolutional": recurrent.ConvolutionalModel,
}
MODELS = {"transformer": Transformer, **RECURRENT}


def config_of(settings, start=None, **vocabulary):
    """The config of a run's model: that of its preset, with its vocabulary and its own fields.

    Args:
        settings: The settings of the run.
        start: Fields of the config of the model that it begins from, instead of a preset.
        vocabulary: The fields that follow from the tokenizers.

    Raises:
        ValueError: If a field is unknown or wrong.
    """
    recurrent_model = RECURRENT.get(settings.model)
    config = recurrent_model.config_class if recurrent_model else TransformerConfig
    fields = start or {**config.presets.get(settings.preset, {}), **vocabulary}
    return config.from_dict({**fields, **settings.model_fields})
