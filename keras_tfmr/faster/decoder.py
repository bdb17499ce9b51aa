"""Finished models that decode with few operations, in the place of those they were made from.

What enters is a `TranslationModel` or `LanguageModel`; what leaves has its methods and its answers.
The search is that of all models: a model starts a `DecodingStep` like any other.
"""

import copy

import numpy as np
import tensorflow as tf
from keras import ops, tree

from keras_tfmr.decoding import checks
from keras_tfmr.decoding.result import lengths_of
from keras_tfmr.decoding.step import DecodingStep, select_rows
from keras_tfmr.faster.parts import Part, Product
from keras_tfmr.faster.transformer import Head, Source, Stack
from keras_tfmr.models import TranslationModel
from keras_tfmr.models.translation import AttentionScores


class FastStep(DecodingStep):
    """The `DecodingStep` of a `FastDecoder`: one token after those in the caches.

    The state has the number of tokens, `index`, and for each layer the keys and values of all
    tokens of each row, or the state of its recurrence.

    Args:
        model: What `read` gave, with tensors for variables.
        num_beams, max_length: As for `TranslationModel.start`.
        source, source_mask: What `Source` gave, if the decoder attends to one.
        before: The number of positions that a prompt takes.
    """

    shrinks = True

    def __init__(
        self, model, num_beams, max_length, source=None, source_mask=None, before=0
    ):  # fmt: skip
        self.decoder, self.head = model.decoder, model.head
        self.num_beams = checks.integer("num_beams", num_beams, 1)
        self.max_length = checks.integer("max_length", max_length, 1)
        self.source, self.source_mask = source, source_mask
        self.vectors = self.decoder.embedding.position_vectors(before + self.max_length)

    def start(self, batch, dtype):
        """The state before the first token."""
        rows = batch * self.num_beams
        caches = [layer.first.cache(rows, dtype) for layer in self.decoder.layers]
        return {"index": tf.constant(0), "caches": caches}

    def next(self, tokens, state):
        logits, normaliser, state = self.unnormalised(tokens, state)
        return logits - normaliser, state

    def unnormalised(self, tokens, state):
        x, caches = self.decoder.step(
            tokens, state["index"], state["caches"], self.vectors, self.num_beams, self.source,
            self.source_mask,
        )  # fmt: skip
        logits, normaliser = self.head.normalised(x)
        return logits, normaliser, {"index": state["index"] + 1, "caches": caches}

    def select_step(self, examples):
        step = copy.copy(self)
        step.source, step.source_mask = select_rows((self.source, self.source_mask), examples)
        return step

    def select_state(self, state, examples):
        beams = np.arange(self.num_beams, dtype="int32")
        rows = tf.reshape(examples[:, None] * self.num_beams + beams, [-1])
        return self.reorder(state, rows)


class FastModel(Part):
    """The base of finished models that decode with few operations.

    They have the attributes of a model that exports read. Their weights do not follow those of the
    model they were made from, and they can be neither trained nor saved.
    """

    def __init__(self, model):
        self.config, self.name, self.made_from = model.config, model.name, type(model)
        self.parameters = model.count_params()

    def finish(self, precision, examples):
        """Makes variables of the weights in a precision, after int8 has met examples."""
        if precision == "int8":
            self.see(examples)
        self.dtype = "float32" if precision == "int8" else precision
        self.precision = precision
        self.freeze(precision)
        self.weights = self.variables()
        return self

    def count_params(self):
        """The number of weights of the model this one was made from."""
        return self.parameters

    def see(self, examples):
        """Lets the products see the inputs of these examples of the model's inputs."""
        for inputs in examples:
            self(inputs)

    def int8_errors(self, examples):
        """See `optimize.int8_errors`; for a model that is not finished."""
        self.see(examples)
        tops = [tf.argmax(self(batch), axis=-1) for batch in examples]
        exact, moved = self._log_probs(examples, tops), {}
        for product in (part for part in self.parts() if isinstance(part, Product) and part.large):
            product.rounded = copy.copy(product)
            product.rounded.freeze("int8")
            difference = self._log_probs(examples, tops) - exact
            moved[product.place] = float(np.abs(difference).mean())
            product.rounded = None
        return dict(sorted(moved.items(), key=lambda item: -item[1]))

    def _log_probs(self, examples, ids):
        """Of these ids at all positions that are no padding: float `[tokens]`."""
        found = []
        for batch, chosen in zip(examples, ids, strict=True):
            log_probs = tf.gather(tf.nn.log_softmax(self(batch)), chosen, batch_dims=2)
            found.append(log_probs.numpy()[np.asarray(tree.flatten(batch)[-1]) != 0])
        return np.concatenate(found)


class FastTranslation(FastModel):
    """A `TranslationModel` that decodes with few operations."""

    def __init__(self, model):
        super().__init__(model)
        tables = {}
        self.encoder = Stack(model.encoder, tables)
        self.decoder = Stack(model.decoder, tables)
        self.source = Source(self.encoder, model.decoder)
        self.head = Head(model.logits, self.decoder)

    def __call__(self, inputs, training=None):
        """As `TranslationModel`, the logits `[batch, target, vocab]`."""
        return self.explain(*tree.flatten(inputs))[0]

    def explain(self, source_ids, target_ids):
        """As `TranslationModel.explain`."""
        model, target_ids = self.read(), tf.cast(target_ids, tf.int32)
        source, source_mask, encoder_scores = model._source(source_ids)
        x, _, scores, cross = model.decoder.whole(
            target_ids, True, target_ids != 0, source, source_mask
        )
        logits = tf.reshape(model.head(x), [*tf.unstack(tf.shape(target_ids)), -1])
        more = (encoder_scores, scores) if scores else (encoder_scores,)
        return logits, AttentionScores(cross, *more)

    def _source(self, ids):
        """Keys and values of each layer, their mask, and the scores of the encoder."""
        ids = tf.cast(ids, tf.int32)
        x, _, scores, _ = self.encoder.whole(ids, False, ids != 0)
        return *self.source(x, tf.unstack(tf.shape(ids)), ids != 0), scores

    def start(self, source_ids, num_beams=1, *, max_length):
        """As `TranslationModel.start`."""
        model = self.read()
        source, source_mask, _ = model._source(source_ids)
        source_mask = source_mask._replace(attends=None)  # values are 0 where there is no source
        step = FastStep(model, num_beams, max_length, source, source_mask)
        return step, step.start(tf.shape(source_ids)[0], self.dtype)


class FastLanguage(FastModel):
    """A `LanguageModel` that decodes with few operations."""

    def __init__(self, model):
        super().__init__(model)
        self.decoder = Stack(model.decoder, {})
        self.head = Head(model.logits, self.decoder)

    def __call__(self, inputs, training=None):
        """As `LanguageModel`, the logits `[batch, length, vocab]`."""
        model, [ids] = self.read(), tree.flatten(inputs)
        ids = tf.cast(ids, tf.int32)
        x, *_ = model.decoder.whole(ids, True, ids != 0)
        return tf.reshape(model.head(x), [*tf.unstack(tf.shape(ids)), -1])

    def start(self, batch, num_beams=1, *, max_length):
        """As `LanguageModel.start`."""
        checks.values("batch", batch, "int32", 0, checks.LARGEST)
        step = FastStep(self.read(), num_beams, max_length)
        return step, step.start(batch, self.dtype)

    def start_after(self, prompt, num_beams=1, *, max_length):
        """As `LanguageModel.start_after`."""
        vocab = self.config.target_vocab
        prompt = checks.padded_ids("prompt", prompt, vocab - 1, 1, batch=None, length=None)
        ended = tf.cumsum(tf.cast(tf.equal(prompt, 0), tf.int32), axis=1) > 0
        prompt, length = tf.where(ended, 0, prompt), ops.shape(prompt)[1]
        # What comes after the shortest prompt is read token by token, as a prefix.
        index = tf.maximum(tf.reduce_min(lengths_of(prompt)) - 1, 0)
        model = self.read()
        step = FastStep(model, num_beams, max_length, before=length - 1)
        room = length - 1 + max_length - index
        known = checks.known(room)
        step.max_length = room if known is None else int(known)
        _, caches, _, _ = model.decoder.whole(prompt[:, :index], True)
        caches = tree.map_structure(lambda x: tf.repeat(x, num_beams, axis=0), caches)
        rest = tf.pad(prompt, [[0, 0], [0, 1 + length]])
        rest = tf.gather(rest, index + tf.range(1 + length), axis=1)
        return step, {"index": index, "caches": caches}, rest[:, 0], rest[:, 1:]


def fast(model):
    """The `FastModel` of a model, not yet finished."""
    return (FastTranslation if isinstance(model, TranslationModel) else FastLanguage)(model)
