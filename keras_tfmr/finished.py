"""Finished models that decode with few operations, in the place of those they were made from.

What enters is a `TranslationModel` or `LanguageModel`; what leaves has its methods and its answers,
and weights of its own, for an export. TensorFlow only.
"""

import copy

import numpy as np
import tensorflow as tf
from keras import tree

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.faster.parts import Part, Product, check_int8
from keras_tfmr.faster.stack import OwnHead, Source, Stack
from keras_tfmr.faster.step import CachedStep, checked_prompt, decoder_and_head, rest_of
from keras_tfmr.faster.taken import encoder_taken
from keras_tfmr.models import AttentionScores, LanguageModel, TranslationModel
from keras_tfmr.precision import PRECISIONS, copy_of, with_precision


def optimize_for_decoding(model, precision=None, examples=()):
    """A copy of a finished model that decodes faster, with the same outputs: a `FinishedModel`.

    Args:
        model: A `TranslationModel` or `LanguageModel`; of others, only the precision changes.
        precision: "float32", "bfloat16" or "int8"; that of the model by default. In int8, large
            products are, and embeddings are stored so: see `keras_tfmr.faster.parts`. Layers of the
            model's own stay in float32 then.
        examples: For int8, what to call the model with to find the ranges of its products' inputs,
            lists of arrays. Without any, products take longer.

    Returns:
        A new model, for decoding only: its weights do not follow those of `model`, and it can be
        neither trained further nor saved. `model` itself, or a copy in another precision, if its
        decoder has no caches: see `why_not_cached`.

    Raises:
        ValueError: For another precision, if a quantised model should change its precision, or if
            int8 does not take the model.
        RuntimeError: If this TensorFlow does not multiply in int8.

    >>> from keras_tfmr import TransformerConfig, TransformerLanguageModel
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> model = TransformerLanguageModel(config)
    >>> token_ids, fast = np.array([[2, 9, 4]]), optimize_for_decoding(model)
    >>> bool(np.allclose(model(token_ids), fast(token_ids), atol=1e-5))
    True
    """
    decodes = isinstance(model, (TranslationModel, LanguageModel))
    if precision not in (None, "int8", *PRECISIONS):
        raise ValueError(
            f"Expected a precision of {(*PRECISIONS, 'int8')}. Received: {precision!r}"
        )
    if decodes and model.why_not_cached() is None:
        return unfinished(model, precision).finished(examples)
    if precision == "int8":
        why = model.why_not_cached() if decodes else f"it is a {type(model).__name__}"
        raise ValueError(
            "int8 takes a TranslationModel or LanguageModel whose decoder has caches. Received: "
            f"{model.name!r}; {why}"
        )
    return model if precision is None else with_precision(model, precision)


def int8_errors(model, examples):
    """How far each large product moves a model if it alone is in int8.

    Args:
        model, examples: As for `optimize_for_decoding`.

    Returns:
        {path of a product: nats by which it moves the log-probability of the most probable token,
        on the mean of all positions that are no padding}, the worst first.
    """
    return unfinished(model, "int8").int8_errors(examples)


def unfinished(model, precision):
    """The `FinishedModel` of a model, which computes in float32 until it is `finished`."""
    if precision == "int8":
        check_int8()
    kind = FinishedTranslation if isinstance(model, TranslationModel) else FinishedLanguageModel
    return kind(model, precision or model.graph.decoder.compute_dtype)


class FinishedModel(Part):
    """The base of finished models that decode with few operations.

    Args:
        model: The model it is made from.
        precision: "float32", "bfloat16" or "int8".
    """

    def __init__(self, model, precision):
        self.name, self.precision = model.name, precision
        self.parameters = model.count_params()

    def finished(self, examples=()):
        """This model with variables for weights, after int8 has met examples."""
        if self.precision == "int8":
            self.see(examples)
        self.finish(self.precision, as_variables=True)
        self.weights = self.variables()
        return self

    def count_params(self):
        """The number of weights of the model this one was made from."""
        return self.parameters

    def products(self):
        """All products that int8 makes faster."""
        return [part for part in self.parts() if isinstance(part, Product) and part.large]

    def see(self, examples):
        """Lets the products see the inputs of these examples of the model's inputs."""
        for product in self.products():
            product.sees = True
        for inputs in examples:
            self(inputs)
        for product in self.products():
            product.sees = False

    def int8_errors(self, examples):
        """See the function `int8_errors`; for a model that is not finished."""
        self.see(examples)
        tops = [tf.argmax(self(batch), axis=-1) for batch in examples]
        exact, moved = self._log_probs(examples, tops), {}
        for product in self.products():
            product.rounded = copy.copy(product)
            product.rounded.round()
            difference = self._log_probs(examples, tops) - exact
            moved[product.place] = float(np.abs(difference).mean())
            product.rounded = None
        return dict(sorted(moved.items(), key=lambda item: -item[1]))

    def target_ids(self, inputs):
        """The target ids among the inputs of the model, as an array."""
        return np.asarray(tree.flatten(inputs)[self.target_place])

    def _log_probs(self, examples, ids):
        """Of these ids at all positions that are no padding: float `[tokens]`."""
        found = []
        for batch, chosen in zip(examples, ids, strict=True):
            log_probs = tf.gather(tf.nn.log_softmax(self(batch)), chosen, batch_dims=2)
            found.append(log_probs.numpy()[self.target_ids(batch) != 0])
        return np.concatenate(found)


class FinishedTranslation(FinishedModel):
    """A `TranslationModel` that decodes with few operations."""

    def __init__(self, model, precision):
        super().__init__(model, precision)
        graph, tables = model.graph, {}
        self.target_place = graph.target_place
        self.encoder = self.encode = None
        if encoder_taken(graph):
            self.encoder = Stack(
                graph.encoder, graph.source_embedding, cross=False, folded=True, tables=tables
            )
        else:
            self.encode = own_layers(graph.encode, precision)
        self.decoder, self.head = decoder_and_head(graph, cross=True, tables=tables)
        if isinstance(self.head, OwnHead):
            self.head = OwnHead(own_layers(graph.head, precision))
        self.source = Source(graph.decoder, self.encoder)

    def __call__(self, inputs, training=None):
        """As `TranslationModel`, the logits `[batch, target, vocab]`."""
        source = tree.flatten(inputs)
        target_ids = source.pop(self.target_place)
        return self.explain(source if len(source) > 1 else source[0], target_ids)[0]

    def explain(self, source, target_ids):
        """As `TranslationModel.explain`."""
        model, target_ids = self.read(), tf.cast(target_ids, tf.int32)
        sources, source_mask, encoder_scores = model.attended(source)
        x, _, scores, cross = model.decoder.whole(
            target_ids, True, target_ids != 0, sources, source_mask
        )
        return in_rows(model.head, x, target_ids), AttentionScores(cross, encoder_scores, scores)

    def attended(self, source):
        """Keys and values of each layer, their mask, and the scores of the encoder."""
        if self.encoder is None:
            context, *mask = tree.flatten(self.encode(source))
            mask, scores = mask[0] if mask else keras_mask(context), []
            shape = tf.unstack(tf.shape(context))[:2]
            x = tf.reshape(context, [-1, context.shape[-1]])
        else:
            ids = tf.cast(source, tf.int32)
            mask, shape = ids != 0, tf.unstack(tf.shape(ids))
            x, _, scores, _ = self.encoder.whole(ids, False, mask)
        return *self.source(x, shape, mask), scores

    def start(self, source, num_beams=1, *, max_length):
        """As `TranslationModel.start`."""
        model = self.read()
        sources, source_mask, _ = model.attended(source)
        step = CachedStep(model.decoder, model.head, num_beams, max_length, sources, source_mask)
        return step, step.start(tf.shape(sources[0][0])[0])


class FinishedLanguageModel(FinishedModel):
    """A `LanguageModel` that decodes with few operations."""

    def __init__(self, model, precision):
        super().__init__(model, precision)
        self.target_place = 0
        self.vocab_size = model.graph.embedding.vocab_size
        self.decoder, self.head = decoder_and_head(model.graph, cross=False, tables={})
        if isinstance(self.head, OwnHead):
            self.head = OwnHead(own_layers(model.graph.head, precision))

    def __call__(self, inputs, training=None):
        """As `LanguageModel`, the logits `[batch, length, vocab]`."""
        model, [ids] = self.read(), tree.flatten(inputs)
        ids = tf.cast(ids, tf.int32)
        x, *_ = model.decoder.whole(ids, True, ids != 0)
        return in_rows(model.head, x, ids)

    def start(self, batch, num_beams=1, *, max_length):
        """As `LanguageModel.start`."""
        _checks.values("batch", batch, "int32", 0, _checks.LARGEST)
        model = self.read()
        step = CachedStep(model.decoder, model.head, num_beams, max_length)
        return step, step.start(batch)

    def start_after(self, prompt, num_beams=1, *, max_length):
        """As `LanguageModel.start_after`."""
        prompt = checked_prompt(prompt, self.vocab_size)
        model = self.read()
        step = CachedStep(model.decoder, model.head, num_beams, max_length)
        step, state = step.after(prompt)
        return step, state, *rest_of(prompt, state["length"])


def own_layers(model, precision):
    """A copy of layers of a model's own, which are called as they are; float32 beside int8."""
    return copy_of(model, "float32" if precision == "int8" else precision)


def in_rows(head, x, ids):
    """Logits `[rows, length, vocab]` of `x` `[rows * length, d_model]`, of ids of that shape."""
    return tf.reshape(head(x), [*tf.unstack(tf.shape(ids)), -1])
