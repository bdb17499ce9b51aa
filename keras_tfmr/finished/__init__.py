"""Finished models: copies that decode in fewer operations, in float32, bfloat16 or int8.

Takes a functional model and returns one of the same class with the same outputs and its own
weights, for an export. Each layer of ours is exchanged for a finished one that computes the same;
others stay as they are. TensorFlow only.
"""

import numpy as np
import tensorflow as tf
from keras import tree

from keras_tfmr.finished.exchange import finished
from keras_tfmr.finished.int8 import check_int8, observing, rounded, rounded_at
from keras_tfmr.finished.parts import exact
from keras_tfmr.models.next_token_model import NextTokenModel
from keras_tfmr.precision import PRECISIONS, is_quantized, precision_of, with_precision


def optimize_for_decoding(model, precision=None, examples=()):
    """A copy of a model that decodes faster, with the same outputs.

    Args:
        model: A `TranslationModel` or `LanguageModel`; for others, only the precision changes.
        precision: "float32", "bfloat16" or "int8"; the model's own by default. In int8, large
            products are computed and embeddings are stored as integers: see
            `keras_tfmr.finished.int8`. Layers that are not ours then stay in float32.
        examples: For int8, inputs of the model, lists of arrays, from which the ranges of the
            products' inputs are found. Without any, products take longer.

    Returns:
        A new model, for decoding only: its weights do not follow those of `model`, and it can be
        neither trained further nor saved. Layers of other classes, or with options that finished
        layers do not know, stay as they are. `model` itself if it is quantised.

    Raises:
        ValueError: For another precision, if a quantised model should change its precision, or if
            int8 finds no layer to round.
        RuntimeError: If this TensorFlow does not multiply in int8.

    >>> from keras_tfmr import TransformerConfig, TransformerLanguageModel
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> model = TransformerLanguageModel(config)
    >>> token_ids, fast = np.array([[2, 9, 4]]), optimize_for_decoding(model)
    >>> bool(np.allclose(model(token_ids), fast(token_ids), atol=1e-5))
    True
    """
    if precision not in (None, "int8", *PRECISIONS):
        raise ValueError(
            f"Expected a precision of {(*PRECISIONS, 'int8')}. Received: {precision!r}"
        )
    if isinstance(model, NextTokenModel) and not is_quantized(model) and model.precision is None:
        if precision == "int8":
            return in_int8(model, examples)
        return finished(model, exact(precision or compute_dtype(model)))[0]
    if precision == "int8":
        raise ValueError(
            "int8 takes a TranslationModel or LanguageModel, neither finished nor quantised. "
            f"Received: {model.name!r}, a {type(model).__name__} in {precision_of(model)}"
        )
    return model if precision is None else with_precision(model, precision)


def compute_dtype(model):
    """The dtype that the layers of a model compute in; float32 if they differ."""
    dtypes = {layer.compute_dtype for layer in model.layers if layer.weights}
    return dtypes.pop() if len(dtypes) == 1 else "float32"


def in_int8(model, examples):
    """A finished model in int8: see `optimize_for_decoding`."""
    check_int8()
    ranges = {}
    observed, exchanged = finished(model, observing(ranges))
    if not exchanged:
        raise ValueError(
            f"int8 rounds layers of keras_tfmr. Received: {model.name!r}, which has none that "
            "finished layers know"
        )
    for inputs in examples:
        observed(inputs)
    return finished(model, rounded(ranges))[0]


def int8_errors(model, examples):
    """The effect of each large product on a model's output if that product alone is in int8.

    Args:
        model, examples: As for `optimize_for_decoding`.

    Returns:
        {path of a product: the mean change in nats of the most probable token's log-probability,
        over all positions without padding}, the worst first.
    """
    check_int8()
    ranges, moved = {}, {}
    observed, _ = finished(model, observing(ranges))
    tops = [tf.argmax(logits_of(observed, batch), axis=-1) for batch in examples]
    expected = _log_probs(observed, examples, tops)
    for place, input_range in ranges.items():
        one_rounded, _ = finished(model, rounded_at(place, input_range))
        difference = _log_probs(one_rounded, examples, tops) - expected
        moved[place] = float(np.abs(difference).mean())
    return dict(sorted(moved.items(), key=lambda item: -item[1]))


def _log_probs(model, examples, ids):
    """The log-probabilities of these ids at all positions without padding: float `[tokens]`."""
    found = []
    for batch, chosen in zip(examples, ids, strict=True):
        log_probs = tf.gather(tf.nn.log_softmax(logits_of(model, batch)), chosen, batch_dims=2)
        target_ids = np.asarray(tree.flatten(batch)[model.target_place])
        found.append(log_probs.numpy()[target_ids != 0])
    return np.concatenate(found)


def logits_of(model, inputs):
    """The logits of a list of inputs."""
    return tree.flatten(model(inputs))[model.logits_place]
