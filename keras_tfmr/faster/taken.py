"""Which decoders have caches, and why others have none."""

import keras

from keras_tfmr import layers
from keras_tfmr.compat import flatten_layers
from keras_tfmr.layers.dense import Dense

# What parts compute, in all options of these classes. Of these classes exactly: a subclass may do
# something else, and is decoded by its own code.
TAKEN = {
    layers.ALiBi,
    layers.CausalDecoder,
    layers.CausalDecoderLayer,
    layers.CausalSelfAttention,
    layers.CrossAttention,
    layers.Decoder,
    layers.DecoderLayer,
    layers.Encoder,
    layers.EncoderLayer,
    layers.GlobalSelfAttention,
    layers.Dropout,
    layers.FeedForward,
    layers.GatedFeedForward,
    layers.LayerNormalization,
    layers.LearnedPositions,
    layers.MultiHeadAttention,
    layers.NoPositions,
    layers.PositionalEmbedding,
    layers.PostNormResidual,
    layers.PreNormResidual,
    layers.RelativePositionBias,
    layers.RMSNormalization,
    layers.RotaryPositions,
    layers.SinusoidalPositions,
    Dense,
    keras.layers.Embedding,
    keras.layers.ReversibleEmbedding,
}
# What treats each position alone, so that it may be called on one position after the other.
POSITION_WISE = {
    layers.LMHead,
    layers.LayerNormalization,
    layers.PositionalEmbedding,  # in reverse
    layers.RMSNormalization,
    keras.layers.Activation,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.InputLayer,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
}
DTYPES = ("float32", "bfloat16", "float16")


def why_not_cached(graph):
    """Why a model is decoded by calling it on all tokens so far; None if by a `CachedStep`.

    Args:
        graph: The `Graph` of the model.
    """
    for operation in graph.head.operations:
        if type(operation) not in POSITION_WISE:
            return f"{operation.name}, behind the decoder, may look at other positions"
    return _why_not_taken(graph.decoder, graph.embedding)


def encoder_taken(graph):
    """Whether parts compute all that comes before the decoder of a model."""
    return graph.encoder is not None and not _why_not_taken(graph.encoder, graph.source_embedding)


def _why_not_taken(stack, embedding):
    """What of a stack and its embedding parts do not compute; None if they compute all."""
    for layer in [*flatten_layers(stack), *flatten_layers(embedding)]:
        if type(layer) not in TAKEN:
            return f"{layer.path} is a {type(layer).__name__}, which is no layer of keras_tfmr"
        if layer.quantization_mode:
            return f"{layer.path} is quantised"
    if not embedding.mask_zero:
        return f"{embedding.path} has mask_zero=False"
    if stack.compute_dtype not in DTYPES:
        return f"{stack.path} computes in {stack.compute_dtype}"
    return None
