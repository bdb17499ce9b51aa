"""Finished models that decode with few operations, in the place of those they were made from.

What enters is a `TranslationModel` or `LanguageModel`; what leaves has its methods and its answers,
and weights of its own, for an export. TensorFlow only.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import tree

from keras_tfmr import _checks
from keras_tfmr.compat import keras_mask
from keras_tfmr.faster.int8 import Int8Weights, ObservingWeights, OneInt8Product, check_int8
from keras_tfmr.faster.parts import Weights
from keras_tfmr.faster.stack import Source, Stack
from keras_tfmr.faster.step import CachedStep, checked_prompt, decoder_and_head, rest_of
from keras_tfmr.faster.taken import encoder_taken
from keras_tfmr.models import AttentionScores, LanguageModel, TranslationModel
from keras_tfmr.precision import PRECISIONS, with_precision


def optimize_for_decoding(model, precision=None, examples=()):
    """A copy of a finished model that decodes faster, with the same outputs: a `FinishedModel`.

    Args:
        model: A `TranslationModel` or `LanguageModel`; of others, only the precision changes.
        precision: "float32", "bfloat16" or "int8"; that of the model by default. In int8, large
            products are, and embeddings are stored so: see `keras_tfmr.faster.int8`. Layers of the
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
        if precision == "int8":
            check_int8()
            observing = ObservingWeights()
            exact = finished(model, observing)
            for inputs in examples:
                exact(inputs)
            return finished(model, Int8Weights(observing.ranges))
        dtype = precision or model.graph.decoder.compute_dtype
        return finished(model, Weights(dtype, as_variables=True))
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
    check_int8()
    weights = ObservingWeights()
    exact, moved = finished(model, weights), {}
    tops = [tf.argmax(exact(batch), axis=-1) for batch in examples]
    expected = _log_probs(exact, examples, tops)
    for place, input_range in weights.ranges.items():
        rounded = finished(model, OneInt8Product(place, input_range))
        difference = _log_probs(rounded, examples, tops) - expected
        moved[place] = float(np.abs(difference).mean())
    return dict(sorted(moved.items(), key=lambda item: -item[1]))


def _log_probs(model, examples, ids):
    """Of these ids at all positions that are no padding: float `[tokens]`."""
    found = []
    for batch, chosen in zip(examples, ids, strict=True):
        log_probs = tf.gather(tf.nn.log_softmax(model(batch)), chosen, batch_dims=2)
        target_ids = np.asarray(tree.flatten(batch)[model.target_place])
        found.append(log_probs.numpy()[target_ids != 0])
    return np.concatenate(found)


def finished(model, weights):
    """The `FinishedModel` of a model, with these `Weights` of variables."""
    kind = FinishedTranslation if isinstance(model, TranslationModel) else FinishedLanguageModel
    return kind(model, weights)


class FinishedModel:
    """The base of finished models that decode with few operations.

    Args:
        model: The model it is made from.
        weights: The `Weights` to make it with.
    """

    def __init__(self, model, weights):
        self.name, self.precision = model.name, weights.precision
        self.parameters, self.weights = model.count_params(), weights.variables

    def count_params(self):
        """The number of weights of the model this one was made from."""
        return self.parameters


class FinishedStep(CachedStep):
    """A `CachedStep` of a `FinishedModel`, whose variables are read once, before a loop begins."""

    def __init__(self, model, *args):
        super().__init__(model.decoder, model.head, *args)
        values = [(weight, tf.convert_to_tensor(weight.value)) for weight in model.weights]
        self.read = keras.StatelessScope(values)

    def unnormalised(self, tokens, state):
        with self.read:  # in which Keras takes these values for those of its variables
            return super().unnormalised(tokens, state)


class FinishedTranslation(FinishedModel):
    """A `TranslationModel` that decodes with few operations."""

    def __init__(self, model, weights):
        super().__init__(model, weights)
        graph = model.graph
        self.target_place = graph.target_place
        self.encoder = self.encode = None
        if encoder_taken(graph):
            self.encoder = Stack(
                weights, graph.encoder, graph.source_embedding, cross=False, folded=True
            )
        else:
            self.encode = weights.layers(graph.encode)
        self.decoder, self.head = decoder_and_head(weights, graph, cross=True)
        self.source = Source(weights, graph.decoder, self.encoder)

    def __call__(self, inputs, training=None):
        """As `TranslationModel`, the logits `[batch, target, vocab]`."""
        source = tree.flatten(inputs)
        target_ids = source.pop(self.target_place)
        return self.explain(source if len(source) > 1 else source[0], target_ids)[0]

    def explain(self, source, target_ids):
        """As `TranslationModel.explain`."""
        target_ids = tf.cast(target_ids, tf.int32)
        sources, source_mask, encoder_scores = self.attended(source)
        x, _, scores, cross = self.decoder.whole(
            target_ids, True, target_ids != 0, sources, source_mask
        )
        return in_rows(self.head, x, target_ids), AttentionScores(cross, encoder_scores, scores)

    def attended(self, source):
        """Keys and values of each layer, the source's mask, and the scores of the encoder."""
        if self.encoder is None:
            context, *mask = tree.flatten(self.encode(source))
            mask, scores = mask[0] if mask else keras_mask(context), []
            shape = tf.unstack(tf.shape(context))[:2]
            x = tf.reshape(context, [-1, context.shape[-1]])
        else:
            ids = tf.cast(source, tf.int32)
            mask, shape = ids != 0, tf.unstack(tf.shape(ids))
            x, _, scores, _ = self.encoder.whole(ids, False, mask)
        return self.source(x, shape, mask), mask, scores

    def start(self, source, num_beams=1, *, max_length):
        """As `TranslationModel.start`."""
        sources, source_mask, _ = self.attended(source)
        step = FinishedStep(self, num_beams, max_length, sources, source_mask)
        return step, step.start(tf.shape(sources[0][0])[0])


class FinishedLanguageModel(FinishedModel):
    """A `LanguageModel` that decodes with few operations."""

    def __init__(self, model, weights):
        super().__init__(model, weights)
        self.target_place = 0
        self.vocab_size = model.graph.embedding.vocab_size
        self.decoder, self.head = decoder_and_head(weights, model.graph, cross=False)

    def __call__(self, inputs, training=None):
        """As `LanguageModel`, the logits `[batch, length, vocab]`."""
        [ids] = tree.flatten(inputs)
        ids = tf.cast(ids, tf.int32)
        x, *_ = self.decoder.whole(ids, True, ids != 0)
        return in_rows(self.head, x, ids)

    def start(self, batch, num_beams=1, *, max_length):
        """As `LanguageModel.start`."""
        _checks.values("batch", batch, "int32", 0, _checks.LARGEST)
        step = FinishedStep(self, num_beams, max_length)
        return step, step.start(batch)

    def start_after(self, prompt, num_beams=1, *, max_length):
        """As `LanguageModel.start_after`."""
        prompt = checked_prompt(prompt, self.vocab_size)
        step, state = FinishedStep(self, num_beams, max_length).after(prompt)
        return step, state, *rest_of(prompt, state["length"])


def in_rows(head, x, ids):
    """Logits `[rows, length, vocab]` of `x` `[rows * length, d_model]`, of ids of that shape."""
    return tf.reshape(head(x), [*tf.unstack(tf.shape(ids)), -1])
