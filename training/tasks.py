"""The tasks: model, batches, loss and scores of each."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfmr import decoding
from keras_tfmr.losses import LabelSmoothedCrossEntropy
from keras_tfmr.metrics import TokenAccuracy
from keras_tfmr.presets.models import MODELS, make_model, read_config
from keras_tfmr.text import protection, spans
from keras_tfmr.text_models.text_model import shifted
from training.scores import accuracy_and_f1, confusion, corpus_scores, perplexity

IDS = tf.TensorSpec([None, None], tf.int32)  # [batch, length]


class Task:
    """One task: what a run learns from the rows of two columns; nothing else knows it.

    Args:
        settings: The settings of the run.
        tokenizers: Of source and target; where the target side has labels, they are `Labels`.

    Attributes:
        kind: Name of the model, for config.json.
        scores: Names of the scores. The first one chooses the weights.
        unit: What a batch is counted in.
        ends: For source and target, whether an end id follows the ids.
        classes: Number of classes of a model with labels.
        most: Tokens of a text that are read in an evaluation during the training; None for all.
    """

    ends = (1, 1)
    classes = None
    most = None

    def __init__(self, settings, tokenizers):
        self.settings, self.tokenizers = settings, tokenizers
        self.kind = settings.task

    def config(self):
        """The config of a new model; raises a RunError if the settings contradict each other."""
        size = self.tokenizers[0].vocab_size
        return make_config(self.settings, size, size)

    def model(self, config, precision="float32"):
        """A new model."""
        return make_model(self.kind, config, self.classes, precision)

    def batch(self, source, target, source_lengths, target_lengths):
        """`(inputs, labels)` of padded ids, for `data.Batches`."""
        raise NotImplementedError

    def signature(self):
        """The types of what `batch` returns."""
        return IDS, IDS

    def loss(self, nominal_tokens):
        """The loss: summed over real tokens, divided by the usual number of them in a batch.

        A mean over the real tokens of each batch or replica would count the tokens of badly filled
        batches for more.
        """
        return LabelSmoothedCrossEntropy(self.settings.label_smoothing, nominal_tokens)

    def metrics(self):
        """The metrics of `fit`."""
        return [TokenAccuracy()]

    def read(self, texts):
        """Texts of an evaluation as the model reads them."""
        return texts

    def outputs(self, model, ids):
        """What `measured` reads, `[rows, …]`, for a batch."""
        raise NotImplementedError

    def measured(self, outputs, rows):
        """Scores by name, a str for each row, and the confusion matrix if there are labels.

        Args:
            outputs: A list of the outputs of each row.
            rows: The texts and what is expected.
        """
        raise NotImplementedError

    def sample(self, source, expected, result):
        """A row and what was found for it, for people."""
        return f"{source}  ->  {result}  ({expected})"


class TranslationTask(Task):
    """The target side of sentence pairs."""

    scores = ("bleu", "chrf")
    unit = "real target tokens"
    most = 128

    def __init__(self, settings, tokenizers):
        super().__init__(settings, tokenizers)
        self.kind = settings.model

    def config(self):
        source, target = self.tokenizers
        return make_config(self.settings, source.vocab_size, target.vocab_size)

    def batch(self, source, target, source_lengths, target_lengths):
        source_side, target_side = self.tokenizers
        end(source, source_lengths, source_side.eos_id, filler=True)
        end(target, target_lengths, target_side.eos_id)
        return (source, shifted(target, target_side.bos_id)), target

    def signature(self):
        return (IDS, IDS), IDS

    def outputs(self, model, ids):
        """Greedy translations by the served decoder, with a lower maximum length.

        The final figures come from the `Translator`, with its beam.
        """
        source, target = self.tokenizers
        config = decoding.DecodingConfig(num_beams=1)
        lengths = ops.sum(ops.cast(ids != 0, "int32"), axis=1)
        slot_ids = target.slot_ids if self.settings.protect else ()
        examples = decoding.Examples(
            ops.full(ops.shape(ids)[:1], target.bos_id, dtype="int32"),
            target.eos_id,
            decoding.banned_ids(target),
            max_lengths=config.max_lengths(lengths),
            **decoding.slots_due(ids, source.slot_ids, slot_ids),
        )
        step, state = model.start(ids, 1, max_length=config.max_length)
        return decoding.search(step, state, config, examples).ids[:, 0]

    def read(self, texts):
        return self._protected(texts)[0] if self.settings.protect else texts

    def measured(self, outputs, rows):
        texts = self.tokenizers[1].decode(keras.utils.pad_sequences(outputs, padding="post"))
        sources = [source for source, _ in rows]
        references = [reference for _, reference in rows]
        if self.settings.protect:
            texts = protection.restore(texts, self._protected(sources)[1])
        texts = [text.decode() for text in texts.numpy()]
        return corpus_scores(texts, references), texts, None

    def _protected(self, texts):
        """Texts with slots, as the `Translator` of the run reads them, and their spans."""
        pattern = spans.combined(self.settings.protect)
        return protection.protect(tf.constant(texts), pattern)


class ClassLoss(LabelSmoothedCrossEntropy):
    """The loss for ids c + 1 of classes c, where id 0 is padding."""

    def call(self, y_true, y_pred):
        return super().call(ops.maximum(y_true - 1, 0), y_pred)


class ClassAccuracy(TokenAccuracy):
    """The accuracy for ids c + 1 of classes c, where id 0 is padding."""

    def values(self, y_true, y_pred):
        return ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1) + 1)


class ClassificationTask(Task):
    """A label for each text."""

    scores = ("accuracy", "macro_f1")
    unit = "texts"
    ends = (1, 0)

    def loss(self, nominal_tokens):
        return ClassLoss(self.settings.label_smoothing, nominal_tokens)

    def metrics(self):
        return [ClassAccuracy()]

    @property
    def classes(self):
        return len(self.tokenizers[1].names)

    def batch(self, source, target, source_lengths, target_lengths):
        end(source, source_lengths, self.tokenizers[0].eos_id, filler=True)
        return source, target[:, 0]  # [batch, length], [batch]

    def signature(self):
        return IDS, tf.TensorSpec([None], tf.int32)

    def outputs(self, model, ids):
        return ops.argmax(model(ids, training=False), axis=-1)

    def measured(self, outputs, rows):
        names = self.tokenizers[1].names
        table = confusion([names.index(label) for _, label in rows], outputs, len(names))
        return accuracy_and_f1(table), [names[number] for number in outputs], table


class LanguageTask(Task):
    """The next token of a text."""

    scores = ("byte_probability", "bits_per_byte", "perplexity")
    unit = "tokens"

    def batch(self, source, target, source_lengths, target_lengths):
        tokenizer = self.tokenizers[0]
        end(target, target_lengths, tokenizer.eos_id)
        return shifted(target, tokenizer.bos_id), target

    def outputs(self, model, ids):
        """The log-probability and the number of tokens of each text, float32 `[rows, 2]`."""
        start = ops.full((ops.shape(ids)[0], 1), self.tokenizers[0].bos_id, dtype="int32")
        fed = ops.concatenate([start, ids[:, :-1]], axis=1)
        log_prob, tokens = decoding.score(model(fed, training=False), ids)
        return ops.stack([log_prob, ops.cast(tokens, "float32")], axis=1)

    def measured(self, outputs, rows):
        log_prob, tokens = np.sum(outputs, axis=0, dtype=np.float64)
        # The line end of a text counts as a byte, because the model predicts an end id for it.
        bits = -log_prob / math.log(2) / sum(len(text.encode()) + 1 for _, text in rows)
        scores = {
            "byte_probability": 100 * 2**-bits,
            "bits_per_byte": bits,
            "perplexity": perplexity(log_prob, tokens),
        }
        return scores, [f"{total:.1f}" for total, _ in outputs], None

    def sample(self, source, text, result):
        return f"{text}  ({result} nats)"


TASKS = {
    "translation": TranslationTask,
    "classify": ClassificationTask,
    "language": LanguageTask,
}


def sizes_of(settings):
    """Fields of the config of a model: those of its preset, and those given instead."""
    preset = MODELS[settings.model].presets.get(settings.preset, {})
    asked = settings.sizes() | settings.dropouts()
    return preset | {name: value for name, value in asked.items() if value is not None}


def make_config(settings, source_vocab, target_vocab):
    """The model config that a resolved `TrainingConfig` asks for."""
    vocabularies = {
        "source_vocab": source_vocab,
        "target_vocab": target_vocab,
        "joint_vocab": settings.joint_vocab,
    }
    return read_config(settings.model, sizes_of(settings) | vocabularies)


def end(ids, lengths, eos_id, filler=False):
    """Writes an end id behind each row of padded ids.

    Rows that only fill a batch get one too with `filler`, because a row of padding alone has
    nothing to attend to; as labels they stay padding.
    """
    ids[np.arange(len(lengths)), lengths] = eos_id
    if filler:
        ids[len(lengths) :, 0] = eos_id
