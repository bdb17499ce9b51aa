"""The config of a ready model, read back from its layers."""

import keras

from keras_tfmr.layers import (
    ALiBi,
    CausalDecoder,
    Decoder,
    Encoder,
    LayerNormalization,
    LearnedPositions,
    LMHead,
    PositionalEmbedding,
    RelativePositionBias,
    RMSNormalization,
    RotaryPositions,
    SinusoidalPositions,
)
from keras_tfmr.layers.base import maybe_deserialize
from keras_tfmr.models.transformer import MeanOverTokens
from keras_tfmr.models.transformer_config import TransformerConfig

# The options that encoder and decoder of a ready model have in common.
SHARED = (
    "d_model", "num_heads", "dff", "dropout_rate", "attention_dropout_rate", "key_dim",
    "num_kv_heads", "norm_first", "activation", "gated", "use_bias",
)  # fmt: skip
# All layers that a ready model can have.
OF_READY_MODELS = {
    keras.layers.InputLayer, PositionalEmbedding, Encoder, Decoder, CausalDecoder, LMHead,
    MeanOverTokens,
}  # fmt: skip


def config_of(model: keras.Model) -> TransformerConfig:
    """The `TransformerConfig` of a model that `Transformer` or another ready model's function made.

    What a config does not say, such as regularizers of weights, is not looked at.

    Args:
        model: A model, built by such a function, loaded from a file or cloned.

    Raises:
        ValueError: If it has other layers, or encoder and decoder differ in what a config says
            once.

    >>> from keras_tfmr import Transformer, TransformerConfig
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> config_of(Transformer(config)) == config
    True
    """
    layers = {type(layer): layer for layer in model.layers}
    stacks = [layers[kind] for kind in (Encoder, Decoder, CausalDecoder) if kind in layers]
    embeddings = {layer.name: layer for layer in model.layers if type(layer) is PositionalEmbedding}
    source = embeddings.get("source_embedding", embeddings.get("embedding"))
    target = embeddings.get("target_embedding", embeddings.get("embedding"))
    options = [{name: getattr(stack, name) for name in SHARED} for stack in stacks]
    norms = [(_norm(stack.norm_config), _norm(stack.qk_norm_config)) for stack in stacks]
    operations = getattr(model, "operations", model.layers)  # of a functional model, or another
    # Keras's graph also has the masks of ids: operations of a private class.
    others = [
        operation
        for operation in operations
        if type(operation) not in OF_READY_MODELS and type(operation).__name__ != "NotEqual"
    ]
    alike = stacks and options[0] == options[-1] and norms[0] == norms[-1]
    if source is None or target is None or others or not alike:
        raise ValueError(
            "The model must be one that Transformer, TransformerLanguageModel or "
            f"TransformerClassifier makes. Received: {model.name!r} with the layers "
            f"{[layer.name for layer in model.layers]}"
        )
    heads = [layer for layer in model.layers if type(layer) is LMHead]
    tied_logits = not heads
    bias = target.logits_bias if tied_logits else heads[0].use_bias
    bias_by_default = not tied_logits
    norm, qk_norm = norms[0]
    kind, epsilon = norm or ("layer", LayerNormalization().epsilon)
    encoder_layers = layers[Encoder].num_layers if Encoder in layers else stacks[0].num_layers
    return TransformerConfig(
        source_vocab=source.vocab_size,
        target_vocab=target.vocab_size,
        encoder_layers=encoder_layers,
        decoder_layers=stacks[-1].num_layers,
        **options[0],
        norm=kind,
        norm_epsilon=epsilon,
        qk_norm=qk_norm is not None,
        joint_vocab=source is target,
        tied_logits=tied_logits,
        logits_bias=None if bias == bias_by_default else bias,
        embedding_scale=target.scaled,
        embedding_norm=target.norm is not None,
        **_positions(target.positions, stacks[0].relative_positions),
    )


def _norm(config):
    """The name and the epsilon of a serialised normalisation; None for None.

    Raises:
        ValueError: If it is none of ours.
    """
    if config is None:
        return None
    layer = maybe_deserialize(dict(config))
    kinds = {LayerNormalization: "layer", RMSNormalization: "rms"}
    if type(layer) not in kinds:
        raise ValueError(f"A config has no normalisation such as {type(layer).__name__}")
    return kinds[type(layer)], layer.epsilon


def _positions(positions, relative):
    """The fields of a config about positions."""
    if isinstance(relative, RotaryPositions):
        return {"positions": "rotary", "max_wavelength": relative.max_wavelength}
    if isinstance(relative, RelativePositionBias):
        if (relative.num_buckets, relative.max_distance) != (32, 128):
            raise ValueError("A config has no relative positions of other buckets than T5's")
        return {"positions": "relative"}
    if isinstance(relative, ALiBi):
        return {"positions": "alibi"}
    if isinstance(positions, LearnedPositions):
        return {"positions": "learned", "max_length": positions.max_length}
    if isinstance(positions, SinusoidalPositions):
        return {"positions": "sinusoidal", "max_wavelength": positions.max_wavelength}
    return {"positions": "none"}
