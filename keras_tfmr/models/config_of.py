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
from keras_tfmr.models.transformer_config import TransformerConfig

# The options that encoder and decoder of a ready model have in common.
SHARED = (
    "d_model", "num_heads", "dff", "dropout_rate", "attention_dropout_rate", "key_dim",
    "num_kv_heads", "norm_first", "activation", "gated", "use_bias",
)  # fmt: skip


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
    if source is None or target is None or not stacks or options[0] != options[-1]:
        raise ValueError(
            "The model must be one that Transformer, TransformerLanguageModel or "
            f"TransformerClassifier makes. Received: {model.name!r} with the layers "
            f"{[layer.name for layer in model.layers]}"
        )
    # A bias is None where it is what a config means by None.
    heads = [layer for layer in model.layers if type(layer) is LMHead]
    bias = heads[0].use_bias if heads else target.logits_bias
    norm = stacks[0].layers[0].feed_forward.residual.norm
    encoder_layers = layers[Encoder].num_layers if Encoder in layers else stacks[0].num_layers
    return TransformerConfig(
        source_vocab=source.vocab_size,
        target_vocab=target.vocab_size,
        encoder_layers=encoder_layers,
        decoder_layers=stacks[-1].num_layers,
        **options[0],
        norm={LayerNormalization: "layer", RMSNormalization: "rms"}[type(norm)],
        norm_epsilon=norm.epsilon,
        qk_norm=stacks[0].qk_norm is not None,
        joint_vocab=source is target,
        tied_logits=not heads,
        logits_bias=None if bias == bool(heads) else bias,
        embedding_scale=target.scaled,
        embedding_norm=target.norm is not None,
        **_positions(target.positions, stacks[0].relative_positions),
    )


def _positions(positions, relative):
    """The fields of a config about positions."""
    if isinstance(relative, RotaryPositions):
        return {"positions": "rotary", "max_wavelength": relative.max_wavelength}
    if isinstance(relative, RelativePositionBias):
        return {"positions": "relative"}
    if isinstance(relative, ALiBi):
        return {"positions": "alibi"}
    if isinstance(positions, LearnedPositions):
        return {"positions": "learned", "max_length": positions.max_length}
    if isinstance(positions, SinusoidalPositions):
        return {"positions": "sinusoidal", "max_wavelength": positions.max_wavelength}
    return {"positions": "none"}
