"""The classes and functions of `keras_tfmr` behind `--task` and `--model`.

Unlike the other files here, this one imports Keras and TensorFlow.
"""

from keras_tfmr import recurrent
from keras_tfmr.models import Transformer
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
