"""The tasks other than translation: the model, the loss and the evaluation of each."""

import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfmr import losses
from keras_tfmr.models import (
    LanguageModel,
    SequenceClassifier,
    TokenClassifier,
    TransformerConfig,
)
from keras_tfmr.precision import dtype_policy
from training.prepare import prepare
from training.run.files import RunError
from training.run.models import make_config
from training.run.start import Start
from training.text import evaluation
from training.text.finish import finish
from training.text.reading import TextReading

MASKED, KEPT, SHARE = 0.8, 0.1, 0.15  # arXiv 1810.04805, section 3.1


class TextTask:
    """The base of these tasks; see `training.run.task.Translation` for the members.

    Args:
        settings: A resolved `TextConfig`.
    """

    def __init__(self, settings):
        self.settings = settings
        self.kind = settings.task
        self.start = Start(settings.start_from) if settings.start_from else None

    def prepare(self, claim):
        tokenizer = self.start and self.start.tokenizers()[0]
        self.data = prepare(self.settings, claim, TextReading(self.settings, tokenizer))
        return self.data

    def config(self, data=None):
        asked = data.tokenizers[0].vocab_size if data else self.settings.vocab_size
        if self.start is None:
            return make_config(self.settings, asked, asked)
        config = TransformerConfig.from_dict(self.start.described["model"]["config"])
        rate = self.settings.dropout_rate
        return config if rate is None else config.replace(dropout_rate=rate)

    def model(self, config, precision="float32"):
        with dtype_policy(precision):
            model = self.new_model(config)
        if self.start is not None and not self.settings.fresh_weights:
            self.begin(model)
        return model

    def begin(self, model):
        """Copies the encoder of the run to start from."""
        donor = model_of(self.start.folder)
        if not hasattr(donor, "encoder"):
            raise RunError(
                f"--task {self.kind} can start from a run of --task masked, classify or tag. "
                f"Received: {self.start.path}, a run of "
                f"{self.start.described['model']['kind']}"
            )
        for mine, its in zip(model.encoder.weights, donor.encoder.weights, strict=True):
            mine.assign(its)

    def stack(self, model):
        """The stack of layers of a model."""
        return model.encoder

    def fed(self, ids):
        """The model's input for a text's ids `[1, length]`."""
        return ids

    def evaluator(self, model, data, workers):
        rows = data.validation[: self.settings.evaluate_pairs]
        return self.evaluator_class(self, model, data.tokenizers, rows)

    def finish(self, run, data):
        if run.workers.chief:
            finish(self, run, data)


class Classification(TextTask):
    """A label for each text."""

    scores = ("accuracy", "macro_f1")
    evaluator_class = evaluation.LabelEvaluator

    def new_model(self, config):
        return SequenceClassifier(config, len(self.data.tokenizers[1].names))

    def sums(self, model, batch):
        (source, _), target = batch
        logits = model(source, training=True)  # [rows, classes]
        return sums_of(logits, target[:, 0], self.settings.label_smoothing)


class Tagging(TextTask):
    """A tag for each token, predicted at its first subword."""

    scores = ("accuracy", "macro_f1")
    evaluator_class = evaluation.TagEvaluator

    def new_model(self, config):
        return TokenClassifier(config, len(self.data.tokenizers[1].names))

    def sums(self, model, batch):
        (source, _), target = batch
        logits = model(source, training=True)  # [rows, length, classes]
        tags = self.tags_of_pieces(source, target)
        return sums_of(logits, tags, self.settings.label_smoothing)

    def tags_of_pieces(self, source, target):
        """int32 `[rows, length]`: the id of the tag where a token begins, 0 elsewhere."""
        beginnings = np.append(self.data.tokenizers[0].word_beginnings(), False)
        begins = ops.take(ops.convert_to_tensor(beginnings), source, axis=0)
        places = ops.cumsum(ops.cast(begins, "int32"), axis=1) - 1
        width = ops.shape(target)[1]
        found = ops.take_along_axis(target, ops.clip(places, 0, width - 1), axis=1)
        return ops.where(begins, found, 0)


class Language(TextTask):
    """The next token of a text."""

    scores = ("byte_probability", "bits_per_byte", "perplexity")
    evaluator_class = evaluation.LanguageEvaluator

    def new_model(self, config):
        return LanguageModel(config)

    def stack(self, model):
        return model.decoder

    def fed(self, ids):
        start = np.full((1, 1), self.data.tokenizers[0].start_id, ids.dtype)
        return np.concatenate([start, ids[:, :-1]], axis=1)

    def begin(self, model):
        donor = model_of(self.start.folder)
        if not isinstance(donor, LanguageModel):
            kind = self.start.described["model"]["kind"]
            raise RunError(
                "--task language can start from a run of --task language. "
                f"Received: {self.start.path}, a run of {kind}"
            )
        model.set_weights(donor.get_weights())

    def sums(self, model, batch):
        (_, target_in), target_out = batch
        logits = model(target_in, training=True)  # [rows, length, vocab]
        weight = losses.real_tokens(target_out)
        each = losses.smoothed_cross_entropy(target_out, logits, self.settings.label_smoothing)
        found = ops.cast(ops.argmax(logits, axis=-1), target_out.dtype)
        right = weight * ops.cast(ops.equal(found, target_out), "float32")
        return ops.sum(each * weight), ops.sum(weight), ops.sum(right)


class Masked(TextTask):
    """Masked tokens, to train an encoder from which a classifier or tagger can start.

    The model predicts 15 % of the tokens. Of these, 80 % are replaced by the unknown id, which does
    not occur in texts, 10 % by another token, and 10 % are kept. The masks depend on the content of
    the batch, so that they differ between epochs, but the same batch has the same masks.

    Reference: Devlin et al. 2018 (arXiv 1810.04805).
    """

    scores = ("accuracy", "perplexity")
    evaluator_class = evaluation.MaskedEvaluator

    def new_model(self, config):
        return TokenClassifier(config, config.source_vocab)

    def sums(self, model, batch):
        (_, _), tokens = batch
        fed, wanted = self.masked(tokens, self.seed_of(tokens))
        logits = model(fed, training=True)  # [rows, length, vocab]
        # In `sums_of`, class c has id c + 1; here, it has id c.
        return sums_of(logits, ops.where(wanted, tokens + 1, 0), 0.0)

    def seed_of(self, tokens):
        """An int32 `[2]` that depends on the content of the batch and the order of its rows."""
        columns = ops.arange(1, ops.shape(tokens)[1] + 1, dtype="int32")
        rows = ops.arange(1, ops.shape(tokens)[0] + 1, dtype="int32")
        mixed = tokens * columns * rows[:, None]
        return ops.cast(ops.stack([ops.sum(mixed), self.settings.seed]), "int32")

    def masked(self, tokens, seed):
        """The masked tokens, int32 `[rows, length]`, and a bool that marks those to predict."""
        tokenizer = self.data.tokenizers[0]
        draw = tf.random.stateless_uniform
        real = (tokens != tokenizer.pad_id) & (tokens != tokenizer.end_id)
        wanted = real & (draw(tf.shape(tokens), seed) < SHARE)
        how = draw(tf.shape(tokens), tf.add(seed, [1, 0]))
        other = draw(
            tf.shape(tokens), tf.add(seed, [2, 0]), minval=tokenizer.end_id + 1,
            maxval=tokenizer.vocab_size, dtype=tf.int32,
        )  # fmt: skip
        kept_or_other = tf.where(how < MASKED + KEPT, tokens, other)
        changed = tf.where(how < MASKED, tokenizer.unknown_id, kept_or_other)
        return tf.where(wanted, changed, tokens), wanted


TASKS = {
    "classify": Classification, "tag": Tagging, "language": Language, "masked": Masked,
}  # fmt: skip


def make_task(settings):
    """The task of a resolved `TextConfig`."""
    return TASKS[settings.task](settings)


def sums_of(logits, ids, label_smoothing):
    """The `sums` of a task, for ids c + 1 of classes c, where id 0 is padding."""
    real = ops.cast(ids > 0, "float32")
    classes = ops.maximum(ids - 1, 0)
    each = losses.smoothed_cross_entropy(classes, logits, label_smoothing)
    found = ops.cast(ops.argmax(logits, axis=-1), classes.dtype)
    right = real * ops.cast(ops.equal(found, classes), "float32")
    return ops.sum(each * real), ops.sum(real), ops.sum(right)


def model_of(folder, weights=None):
    """The model of a run of one of these tasks, with its best weights or those of another file."""
    described = folder.read_config()["model"]
    config = TransformerConfig.from_dict(described["config"])
    kind, (_, target) = described["kind"], folder.tokenizers()
    if kind not in TASKS:
        raise RunError(
            f"Expected a run of one of the tasks {', '.join(TASKS)}. "
            f"Received: {folder.path}, a run of {kind}"
        )
    if kind == "language":
        model = LanguageModel(config)
    else:
        model_class = SequenceClassifier if kind == "classify" else TokenClassifier
        model = model_class(config, config.source_vocab if kind == "masked" else len(target.names))
    path = weights or folder.best
    try:
        model.load_weights(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} does not fit the model of its run: {error}") from error
    return model


def text_model_of(folder, weights=None, max_length=128):
    """The `Classifier`, `Tagger` or `Completer` of a run."""
    from keras_tfmr import Classifier, Completer, Tagger

    model, kind = model_of(folder, weights), folder.read_config()["model"]["kind"]
    tokenizer, target = folder.tokenizers()
    if kind == "masked":
        raise RunError(
            f"{folder.path} is a run of --task masked, which cannot be served: train a classifier "
            "or tagger with --start_from"
        )
    if kind == "language":
        return Completer(model, tokenizer, max_length=max_length)
    make = Classifier if kind == "classify" else Tagger
    return make(model, tokenizer, target.names, max_length=max_length)
