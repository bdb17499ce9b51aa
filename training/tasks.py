"""What a run can learn: the model, the batches, the loss and the metrics of each task."""

import numpy as np
from keras import ops

import keras_tfmr
from keras_tfmr import recurrent
from keras_tfmr.losses import LabelSmoothedCrossEntropy, smoothed_cross_entropy
from keras_tfmr.metrics import TokenAccuracy
from keras_tfmr.models import (
    LanguageModel,
    SequenceClassifier,
    TokenClassifier,
    TransformerConfig,
    TranslationModel,
)
from keras_tfmr.precision import dtype_policy
from training.files import RunError

_MODELS = {  # kind of model: the classes of its config and of itself
    "transformer": (TransformerConfig, TranslationModel),
    "seq2seq": (recurrent.Seq2SeqConfig, recurrent.Seq2SeqModel),
    "rnnsearch": (recurrent.RNNSearchConfig, recurrent.RNNSearchModel),
    "convolutional": (recurrent.ConvolutionalConfig, recurrent.ConvolutionalModel),
    "classify": (TransformerConfig, SequenceClassifier),
    "tag": (TransformerConfig, TokenClassifier),
    "masked": (TransformerConfig, TokenClassifier),
    "language": (TransformerConfig, LanguageModel),
}
MASKED, KEPT, SHARE = 0.8, 0.1, 0.15  # arXiv 1810.04805, section 3.1


class Translation:
    """Learns the target side of sentence pairs from the source side.

    The other tasks are subclasses; nothing else knows what is learned.

    Attributes:
        kind: Name of the model, for config.json.
        scores: Names of the evaluator's scores. The first one chooses the weights.
        unit: What a batch is counted in.
        ends: For source and target, whether an end id follows the ids.
        share: The share of the target ids that are predicted.
        classes: Number of classes of a model with labels.
        inputs: Number of arrays that the model reads.
    """

    scores, unit, inputs, exports = ("bleu", "chrf"), "real target tokens", 2, True
    ends, share, classes = (1, 1), 1.0, None

    def __init__(self, settings, tokenizers):
        self.settings, self.tokenizers = settings, tokenizers
        self.kind = settings.model if settings.task == "translation" else settings.task

    def config(self):
        """The config of a new model; raises a RunError if the settings contradict each other."""
        vocabs = [tokenizer.vocab_size for tokenizer in self.tokenizers]
        return make_config(self.settings, *vocabs)

    def model(self, config, precision="float32"):
        """A new model."""
        return make_model(self.kind, config, self.classes, precision)

    def batch(self, source, target, source_lengths, target_lengths, seed):
        """`(inputs, labels)` of padded ids, for `data.Batches`."""
        source_side, target_side = self.tokenizers
        end(source, source_lengths, source_side.eos_id, filler=True)
        end(target, target_lengths, target_side.eos_id)
        return (source, shifted(target, target_side.bos_id)), target

    def signature(self):
        """The types of what `batch` returns."""
        import tensorflow as tf

        ids = tf.TensorSpec([None, None], tf.int32)
        labels = tf.TensorSpec([None], tf.int32) if self.kind == "classify" else ids
        return ((ids, ids) if self.inputs == 2 else ids, labels)

    def loss(self, nominal_tokens):
        """The loss: summed over real tokens, divided by the usual number of them in a batch.

        A mean over the real tokens of each batch or replica would count the tokens of badly filled
        batches for more.
        """
        return LabelSmoothedCrossEntropy(self.settings.label_smoothing, nominal_tokens)

    def metrics(self):
        """The metrics of `fit`."""
        return [TokenAccuracy()]


class ClassLoss(LabelSmoothedCrossEntropy):
    """The loss for ids c + 1 of classes c, where id 0 is padding."""

    def call(self, y_true, y_pred):
        return smoothed_cross_entropy(ops.maximum(y_true - 1, 0), y_pred, self.label_smoothing)


class ClassAccuracy(TokenAccuracy):
    """The accuracy for ids c + 1 of classes c, where id 0 is padding."""

    def values(self, y_true, y_pred):
        return ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1) + 1)


class TextTask(Translation):
    """The base of the tasks other than translation."""

    inputs = 1

    def config(self):
        size = self.tokenizers[0].vocab_size
        return make_config(self.settings, size, size)

    def loss(self, nominal_tokens):
        return ClassLoss(self.settings.label_smoothing, nominal_tokens)

    def metrics(self):
        return [ClassAccuracy()]


class Classification(TextTask):
    """A label for each text."""

    scores, unit, ends = ("accuracy", "macro_f1"), "texts", (1, 0)
    served = "Classifier"

    @property
    def classes(self):
        return len(self.tokenizers[1].names)

    def batch(self, source, target, source_lengths, target_lengths, seed):
        end(source, source_lengths, self.tokenizers[0].eos_id, filler=True)
        return source, target[:, 0]

    @classmethod
    def text_model(cls, folder, model, max_length):
        """The `Classifier` or `Tagger` of a run."""
        tokenizer, labels = folder.tokenizers()
        text_model = getattr(keras_tfmr, cls.served)
        return text_model(model, tokenizer, labels.names, max_length=max_length)


class Tagging(Classification):
    """A tag for each token, predicted at its first subword."""

    unit, served = "tagged tokens", "Tagger"

    def batch(self, source, target, source_lengths, target_lengths, seed):
        tokenizer = self.tokenizers[0]
        begins = np.append(tokenizer.word_beginnings(), False)[source]
        places = np.cumsum(begins, axis=1) - 1
        found = np.take_along_axis(target, np.clip(places, 0, target.shape[1] - 1), axis=1)
        end(source, source_lengths, tokenizer.eos_id, filler=True)
        return source, np.where(begins, found, 0).astype(np.int32)


class Language(TextTask):
    """The next token of a text."""

    scores, unit = ("byte_probability", "bits_per_byte", "perplexity"), "tokens"
    loss, metrics = Translation.loss, Translation.metrics

    def batch(self, source, target, source_lengths, target_lengths, seed):
        tokenizer = self.tokenizers[0]
        end(target, target_lengths, tokenizer.eos_id)
        return shifted(target, tokenizer.bos_id), target

    @staticmethod
    def text_model(folder, model, max_length):
        """The `Completer` of a run."""
        from keras_tfmr import Completer

        return Completer(model, folder.tokenizers()[0], max_length=max_length)


class Masked(TextTask):
    """Masked tokens, to train an encoder from which a classifier or tagger can start.

    The model predicts 15 % of the tokens. Of these, 80 % are replaced by the unknown id, which does
    not occur in texts, 10 % by another token, and 10 % are kept; other ones in each epoch.

    Reference: Devlin et al. 2018 (arXiv 1810.04805).
    """

    scores, unit, exports = ("accuracy", "perplexity"), "masked tokens", False
    share = SHARE

    @property
    def classes(self):
        return self.tokenizers[0].vocab_size

    def batch(self, source, target, source_lengths, target_lengths, seed):
        real = target > 0
        end(target, target_lengths, self.tokenizers[0].eos_id)
        return self.masked(target, real, np.random.default_rng(seed))

    def masked(self, ids, real, random):
        """The ids with masks, and the labels: id + 1 where it is to be predicted, else 0."""
        tokenizer = self.tokenizers[0]
        wanted = real & (random.random(ids.shape) < SHARE)
        how = random.random(ids.shape)
        other = random.integers(tokenizer.eos_id + 1, tokenizer.vocab_size, ids.shape)
        changed = np.where(how < MASKED + KEPT, ids, other)
        changed = np.where(how < MASKED, tokenizer.unknown_id, changed)
        fed = np.where(wanted, changed, ids).astype(np.int32)
        return fed, np.where(wanted, ids + 1, 0).astype(np.int32)

    @staticmethod
    def text_model(folder, model, max_length):
        """Raises: a masked model has no use of its own."""
        raise RunError(
            f"{folder.path} is a run of --task masked, which cannot be served: train a classifier "
            "or tagger with --init_from"
        )


TASKS = {
    "translation": Translation, "classify": Classification, "tag": Tagging, "language": Language,
    "masked": Masked,
}  # fmt: skip


def end(ids, lengths, eos_id, filler=False):
    """Writes an end id behind each row of padded ids.

    Rows that only fill a batch get one too with `filler`, because a row of padding alone has
    nothing to attend to; as labels they stay padding.
    """
    ids[np.arange(len(lengths)), lengths] = eos_id
    if filler:
        ids[len(lengths) :, 0] = eos_id


def shifted(ids, bos_id):
    """Padded ids behind a start id, without the last one."""
    return np.concatenate([np.full([len(ids), 1], bos_id, np.int32), ids[:, :-1]], axis=1)


def preset_of(kind, name):
    """The fields of a model's preset; none if the model has no preset of that name."""
    return _MODELS[kind][0].presets.get(name, {})


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
    try:
        return _MODELS[settings.model][0](**fields)
    except ValueError as error:
        raise RunError(str(error)) from error


def make_model(kind, config, classes=None, precision="float32"):
    """A new model.

    Args:
        kind: A key of `TASKS` other than translation, or a kind of translator.
        config: Its config, or the dictionary of one.
        classes: Number of classes of an encoder with labels.
        precision: The dtype policy of its layers.
    """
    if kind not in _MODELS:
        raise RunError(f"Expected a run of one of {', '.join(_MODELS)}. Received: a run of {kind}")
    if isinstance(config, dict):
        config = read_config(kind, config)
    with dtype_policy(precision):
        return _MODELS[kind][1](config, *([classes] if classes else []))


def read_config(kind, fields):
    """The config of a kind of model, from its dictionary."""
    return _MODELS[kind][0].from_dict(fields)
