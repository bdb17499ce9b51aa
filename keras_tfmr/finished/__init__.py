"""Finished models: copies that decode in fewer operations, in float32, bfloat16 or int8.

Takes a functional model and returns one of the same class with the same outputs and its own
weights, for an export. Each layer of ours becomes a finished one that computes the same;
others stay as they are. TensorFlow only.
"""

import warnings

from keras_tfmr.finished.convert import finished
from keras_tfmr.finished.int8 import check_int8, is_large, observing, rounded, share_of_int8
from keras_tfmr.finished.products import exact
from keras_tfmr.models.next_token_model import NextTokenModel
from keras_tfmr.precision import (
    PRECISIONS,
    is_quantized,
    policies_of,
    precision_of,
    with_precision,
)


def optimize_for_decoding(model, precision=None, examples=()):
    """A copy of a model that decodes faster, with the same outputs.

    Args:
        model: A `TranslationModel` or `LanguageModel`; for others, only the precision changes.
        precision: "float32", "bfloat16" or "int8"; the model's own by default. In int8, large
            products are computed and embeddings are stored as integers: see
            `keras_tfmr.finished.int8`. Layers that are not ours then stay in float32, and a warning
            names the large ones.
        examples: Inputs of the model, lists of arrays, from which int8 finds the ranges of the
            products' inputs.

    Returns:
        A new model, for decoding only: its weights do not follow those of `model`, and it can be
        neither trained further nor saved. Layers of other classes, or with options that finished
        layers do not know, stay as they are. `model` itself if it is quantised.

    Raises:
        ValueError: For another precision, if a quantised model should change its precision, or if
            int8 is given no examples or finds no layer to round.
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
    dtypes = {policy.compute_dtype for policy in policies_of(model)}
    return dtypes.pop() if len(dtypes) == 1 else "float32"


def in_int8(model, examples):
    """A finished model in int8: see `optimize_for_decoding`."""
    check_int8()
    examples = list(examples)
    if not examples:
        raise ValueError(
            "int8 needs `examples`, inputs of the model like those to come (of a text model: "
            "`texts`), to find the ranges of products with. Received: none"
        )
    ranges = {}
    observed, reasons = finished(model, observing(ranges))
    for inputs in examples:
        observed(inputs)
    copy, _ = finished(model, rounded(ranges))
    in_float32 = [
        f"{layer.name!r}, because {reason}"
        for layer, reason in reasons.items()
        if any(is_large(weight) for weight in layer.weights)
    ]
    if share_of_int8(copy) == 0:
        raise ValueError(
            f"int8 finds no layer to round in {model.name!r}. In float32 stay "
            f"{'; '.join(in_float32) or 'all, because they are small'}"
        )
    if in_float32:
        warnings.warn(
            f"int8 leaves layers of {model.name!r} in float32: {'; '.join(in_float32)}",
            stacklevel=3,
        )
    return copy
