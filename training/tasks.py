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

MASKED, KEPT, SHARE = 0.8, 0.1, 0.15  # arXiv 1810.04805, section 3.1


class Task:
    """One task: what a run learns from the rows of two columns; nothing else knows it.

    Args:
        settings: The settings of the run.
        tokenizers: Of source and target; where the target side has labels, they are `Labels`.

    Attributes:
        kind: Name of the model, for config.json.
        scores: Names of the scores. The first one chooses the weights.
        unit: What a batch is counted in.
        exports: Whether the model can be served.
        ends: For source and target, whether an end id follows the ids.
        share: Fraction of the target ids that are predicted.
        classes: Number of classes of a model with labels.
        inputs: Number of arrays that the model reads.
        label_rank: Number of dimensions of the labels of a batch.
        most: Tokens of a text that are read in an evaluation during the training; None for all.
    """

    inputs, label_rank, exports = 1, 2, True
    ends, share, classes, most = (1, 1), 1.0, None, None

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

    def batch(self, source, target, source_lengths, target_lengths, seed):
        """`(inputs, labels)` of padded ids, for `data.Batches`."""
        raise NotImplementedError

    def signature(self):
        """The types of what `batch` returns."""
        import tensorflow as tf

        ids = tf.TensorSpec([None, None], tf.int32)
        labels = tf.TensorSpec([None] * self.label_rank, tf.int32)
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

    def read(self, texts):
        """Texts of an evaluation as the model reads them."""
        return texts

    def evaluated(self, batches):
        """What an evaluation passes to `outputs`, of batches int32 `[rows, length]` of ids."""
        return batches

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

    scores, unit, inputs, most = ("bleu", "chrf"), "real target tokens", 2, 128

    def __init__(self, settings, tokenizers):
        super().__init__(settings, tokenizers)
        self.kind = settings.model

    def config(self):
        return make_config(self.settings, *(side.vocab_size for side in self.tokenizers))

    def batch(self, source, target, source_lengths, target_lengths, seed):
        source_side, target_side = self.tokenizers
        end(source, source_lengths, source_side.eos_id, filler=True)
        end(target, target_lengths, target_side.eos_id)
        return (source, shifted(target, target_side.bos_id)), target

    def outputs(self, model, ids):
        """Greedy translations by the served decoder, with a lower maximum length.

        The final figures come from the `Translator`, with its beam.
        """
        config, (source, target) = decoding.DecodingConfig(num_beams=1), self.tokenizers
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
        sources, references = zip(*rows, strict=True)
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


class ClassTask(Task):
    """The base of the tasks whose model has a class for each text or token."""

    def loss(self, nominal_tokens):
        return ClassLoss(self.settings.label_smoothing, nominal_tokens)

    def metrics(self):
        return [ClassAccuracy()]


class ClassificationTask(ClassTask):
    """A label for each text."""

    scores, unit, ends, label_rank = ("accuracy", "macro_f1"), "texts", (1, 0), 1

    @property
    def classes(self):
        return len(self.tokenizers[1].names)

    def batch(self, source, target, source_lengths, target_lengths, seed):
        end(source, source_lengths, self.tokenizers[0].eos_id, filler=True)
        return source, target[:, 0]

    def outputs(self, model, ids):
        return ops.argmax(model(ids, training=False), axis=-1)[:, None]

    def measured(self, outputs, rows):
        names, outputs = self.tokenizers[1].names, [row[row >= 0] for row in outputs]
        wanted = [names.index(label) for _, labels in rows for label in labels.split()]
        table = confusion(wanted, np.concatenate(outputs), len(names))
        texts = [" ".join(names[number] for number in row) for row in outputs]
        return accuracy_and_f1(table), texts, table


class TaggingTask(ClassificationTask):
    """A tag for each token, predicted at its first subword."""

    unit, label_rank = "tagged tokens", 2

    def batch(self, source, target, source_lengths, target_lengths, seed):
        tokenizer = self.tokenizers[0]
        begins = np.append(tokenizer.word_beginnings(), False)[source]
        places = np.cumsum(begins, axis=1) - 1
        labels = np.take_along_axis(target, np.clip(places, 0, target.shape[1] - 1), axis=1)
        end(source, source_lengths, tokenizer.eos_id, filler=True)
        return source, np.where(begins, labels, 0).astype(np.int32)

    def outputs(self, model, ids):
        beginnings = ops.convert_to_tensor(self.tokenizers[0].word_beginnings())
        labels = ops.argmax(model(ids, training=False), axis=-1)
        return ops.where(ops.take(beginnings, ids, axis=0), labels, -1)

    def sample(self, tokens, tags, result):
        pairs = zip(tokens.split(), result.split(), strict=False)
        return " ".join(f"{token}/{tag}" for token, tag in pairs)


class LanguageTask(Task):
    """The next token of a text."""

    scores, unit = ("byte_probability", "bits_per_byte", "perplexity"), "tokens"

    def batch(self, source, target, source_lengths, target_lengths, seed):
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


class MaskedTask(ClassTask):
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

    def evaluated(self, batches):
        """int32 `[rows, 2 · length]`: the masked ids, always the same ones, then the labels."""
        random, eos_id = np.random.default_rng(7), self.tokenizers[0].eos_id
        masked = (self.masked(ids, ids > eos_id, random) for ids in batches)
        return [np.concatenate(pair, axis=1) for pair in masked]

    def outputs(self, model, ids):
        """Number of correct tokens, their log-probability, their number: float32 `[rows, 3]`."""
        length = ops.shape(ids)[1] // 2
        fed, labels = ids[:, :length], ids[:, length:]
        log_probs = ops.log_softmax(ops.cast(model(fed, training=False), "float32"))
        wanted, classes = ops.cast(labels > 0, "float32"), ops.maximum(labels - 1, 0)
        right = ops.cast(ops.equal(ops.argmax(log_probs, axis=-1), classes), "float32")
        log_prob = ops.take_along_axis(log_probs, classes[..., None], axis=-1)[..., 0]
        return ops.stack([ops.sum(x * wanted, axis=1) for x in (right, log_prob, wanted)], axis=1)

    def measured(self, outputs, rows):
        right, log_prob, count = np.sum(outputs, axis=0, dtype=np.float64)
        count = max(count, 1)
        scores = {"accuracy": 100 * right / count, "perplexity": perplexity(log_prob, count)}
        return scores, [f"{int(row[0])} of {int(row[2])}" for row in outputs], None

    def sample(self, source, text, result):
        return f"{text}  ({result} masked tokens found)"


TASKS = {
    "translation": TranslationTask, "classify": ClassificationTask, "tag": TaggingTask,
    "language": LanguageTask, "masked": MaskedTask,
}  # fmt: skip


def sizes_of(settings):
    """Fields of the config of a model: those of its preset, and those given instead."""
    preset = MODELS[settings.model][0].presets.get(settings.preset, {})
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
