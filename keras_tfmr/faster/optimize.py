"""Which finished models are decoded by a faster copy, and by which."""

import inspect

import keras

from keras_tfmr import compat, layers
from keras_tfmr.faster.precision import PRECISIONS, is_quantized, with_precision
from keras_tfmr.layers.dense import Dense
from keras_tfmr.models import LanguageModel, TranslationModel

# What a faster copy computes, in all their options. Of these classes exactly: a subclass may do
# something else, and is decoded by its own code.
TAKEN = {getattr(layers, name) for name in layers.__all__} - {layers.AddPositions}
TAKEN |= {LanguageModel, TranslationModel}
TAKEN |= {Dense, keras.layers.Embedding, keras.layers.ReversibleEmbedding}
OF_KERAS = {"build", "quantize"}  # methods that Keras itself puts on a layer


def optimize_for_decoding(model, precision=None, examples=()):
    """A copy of a finished model that decodes faster, with the same outputs: a `FastModel`.

    Args:
        model: A `TranslationModel` or `LanguageModel`; of others, only the precision changes.
        precision: "float32", "bfloat16" or "int8"; that of the model by default. In int8, large
            products are, and embeddings are stored so: see `keras_tfmr.faster.parts`.
        examples: For int8, what to call the model with to find the ranges of its products' inputs,
            tuples of arrays. Without any, products take longer.

    Returns:
        A new model, for decoding only: its weights do not follow those of `model`, and it can be
        neither trained further nor saved. `model` itself, or a copy in another precision, if
        `takes` says no.

    Raises:
        ValueError: For another precision, if a quantised model should change its precision, or if
            int8 does not take the model.
        RuntimeError: If this TensorFlow does not multiply in int8.

    >>> from keras_tfmr import LanguageModel, TransformerConfig
    >>> model = LanguageModel(TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> token_ids, fast = np.array([[2, 9, 4]]), optimize_for_decoding(model)
    >>> bool(np.allclose(model(token_ids), fast(token_ids), atol=1e-5))
    True
    """
    if takes(model) and precision in (None, "int8", *PRECISIONS):
        precision = precision or model.dtype_policy.compute_dtype
        return _unfinished(model, precision).finish(precision, examples)
    if precision == "int8":
        raise ValueError(
            "int8 takes a TranslationModel or LanguageModel of the layers of keras_tfmr that is "
            f"not quantised. Received: {type(model).__name__} {model.name!r}"
        )
    return model if precision is None else with_precision(model, precision)


def takes(model):
    """Whether a `FastModel` computes all that a model does; others are decoded by their layers."""
    if keras.backend.backend() != "tensorflow":
        return False
    if not isinstance(model, (LanguageModel, TranslationModel)) or is_quantized(model):
        return False
    parts = compat.flatten_layers(model)
    return (
        not model.config.only_in_layers
        and all(type(part) in TAKEN and not _overridden(part) for part in parts)
        and model.dtype_policy.compute_dtype in PRECISIONS
        and all(part.mask_zero for part in parts if isinstance(part, layers.PositionalEmbedding))
        and all(
            part.key_dim == part.value_dim
            for part in parts
            if isinstance(part, layers.MultiHeadAttention)
        )
    )


def _overridden(layer):
    """The names of methods that only this layer of its class has."""
    own = {name for name, value in vars(layer).items() if inspect.isroutine(value)}
    return {name for name in own if hasattr(type(layer), name)} - OF_KERAS


def int8_errors(model, examples):
    """How far each large product moves a model if it alone is in int8.

    Args:
        model, examples: As for `optimize_for_decoding`.

    Returns:
        {path of a product: nats by which it moves the log-probability of the most probable token,
        on the mean of all positions that are no padding}, the worst first.
    """
    return _unfinished(model, "int8").int8_errors(examples)


def _unfinished(model, precision):
    from keras_tfmr.faster import decoder, parts

    if precision == "int8":
        parts.check_int8()
    return decoder.fast(model)
