"""The tasks: model, batches, loss and scores of each."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfmr import decoding, recurrent
from keras_tfmr.losses import LabelSmoothedCrossEntropy
from keras_tfmr.metrics import TokenAccuracy
from keras_tfmr.models import TransformerClassifier, TransformerLanguageModel
from keras_tfmr.presets.models import ready_entry
from keras_tfmr.presets.registered import registered_name
from keras_tfmr.text import protection, spans
from keras_tfmr.text_models.text_model import shifted
from training import phrasebook
from training.command.disk import RunError
from training.scores import accuracy_and_f1, confusion, corpus_scores, perplexity
from training.settings.models import MODELS, RECURRENT, TEXT_MODELS, config_of

IDS = tf.TensorSpec([None, None], tf.int32)  # [batch, length]


class Task:
    """One task: the model and the scores of a run that learns from rows of two columns.

    Args:
        settings: The settings of the run.
        tokenizers: Those of source and target; where the target side has labels, `Labels`.

    Attributes:
        made_by: The function or class that makes the model.
        scores: Names of the scores. The first one chooses the weights.
        unit: The unit that batches are counted in.
        ends: For source and target, whether an end id follows the ids.
        longest: Tokens of a text that are read in validations; None for all.
    """

    ends = (1, 1)
    longest = None

    def __init__(self, settings, tokenizers):
        self.settings, self.tokenizers = settings, tokenizers

    def config(self, start=None):
        """The config of a new model; a RunError if the settings contradict each other.

        Args:
            start: Fields of the config of the model that it begins from.
        """
        source, target = self.vocab_sizes()
        try:
            config = config_of(
                self.settings, start,
                source_vocab=source, target_vocab=target, joint_vocab=self.settings.joint_vocab,
            )  # fmt: skip
        except ValueError as error:
            raise RunError(str(error)) from error
        if source > config.source_vocab or target > config.target_vocab:
            raise RunError(
                f"--init_from {self.settings.init_from} has tokenizers of {source} and {target} "
                f"ids, and a model of {config.source_vocab} and {config.target_vocab}"
            )
        return config

    def vocab_sizes(self):
        """The number of ids of source and target in the config."""
        size = self.tokenizers[0].vocab_size
        return size, size

    def arguments(self):
        """The arguments of `made_by` other than the config."""
        return {}

    def model(self, config, precision="float32"):
        """A new model."""
        return self.made_by(config, dtype=precision, **self.arguments())

    def entries(self, config):
        """The entries of config.json for the model and the text model."""
        return {
            "model": ready_entry(self.made_by, config, **self.arguments()),
            "text_model": {
                "class_name": registered_name(TEXT_MODELS[self.settings.task]),
                "config": self.text_model_config(),
            },
        }

    def text_model_config(self):
        """Options of the text model."""
        return {}

    def transferred(self, model):
        """The weights of a model that another run of the task begins with."""
        return model.weights

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
        """The outputs for a batch, `[rows, …]`, that `measured` reads."""
        raise NotImplementedError

    def measured(self, outputs, rows):
        """Scores by name, a str for each row, and the confusion matrix if there are labels.

        Args:
            outputs: The output for each row.
            rows: (source, target) of each.
        """
        raise NotImplementedError

    def sample(self, source, expected, result):
        """A row and its result, for people."""
        return f"{source}  ->  {result}  ({expected})"


class TranslationTask(Task):
    """The target side of sentence pairs."""

    scores = ("bleu", "chrf")
    unit = "real target tokens"
    longest = 128

    def __init__(self, settings, tokenizers):
        super().__init__(settings, tokenizers)
        self.made_by = MODELS[settings.model]

    def vocab_sizes(self):
        source, target = self.tokenizers
        return source.vocab_size, target.vocab_size

    def model(self, config, precision="float32"):
        if self.settings.model not in RECURRENT:
            return super().model(config, precision)
        with recurrent.dtype_policy(precision):
            return self.made_by(config)

    def text_model_config(self):
        settings = self.settings
        languages = phrasebook.LANGUAGES if settings.phrasebook else settings.languages
        return {
            "num_beams": settings.num_beams,
            "length_penalty": settings.length_penalty,
            "languages": [*languages] or ["", ""],
            "protect": settings.protect,
        }

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

    made_by = staticmethod(TransformerClassifier)
    scores = ("accuracy", "macro_f1")
    unit = "texts"
    ends = (1, 0)

    def loss(self, nominal_tokens):
        return ClassLoss(self.settings.label_smoothing, nominal_tokens)

    def metrics(self):
        return [ClassAccuracy()]

    def arguments(self):
        return {"num_classes": len(self.tokenizers[1].names)}

    def transferred(self, model):
        """All but those that make the labels, which may be others."""
        return model.get_layer("embedding").weights + model.get_layer("encoder").weights

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

    made_by = staticmethod(TransformerLanguageModel)
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


def end(ids, lengths, eos_id, filler=False):
    """Writes an end id behind each row of padded ids.

    Rows that only fill a batch get one too with `filler`, because a row of padding alone has
    nothing to attend to; as labels they stay padding.
    """
    ids[np.arange(len(lengths)), lengths] = eos_id
    if filler:
        ids[len(lengths) :, 0] = eos_id
