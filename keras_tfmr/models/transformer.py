"""The ready models: the paper's Transformer, and its encoder and its decoder alone.

Each is a few lines of Keras's functional API, to be read beside the paper's Figure 1, and to be
copied by whoever wants another model.
"""

from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.layers import (
    ALiBi,
    CausalDecoder,
    Decoder,
    Encoder,
    LayerNormalization,
    LearnedPositions,
    LMHead,
    NoPositions,
    PositionalEmbedding,
    RelativePositionBias,
    RMSNormalization,
    RotaryPositions,
    SinusoidalPositions,
)
from keras_tfmr.layers.base import MaskingLayer
from keras_tfmr.layers.masking import masked_mean
from keras_tfmr.models.functional_model import FunctionalModel
from keras_tfmr.models.language import LanguageModel
from keras_tfmr.models.transformer_config import TransformerConfig
from keras_tfmr.models.translation import TranslationModel


def Transformer(  # noqa: N802  (named like the models of keras.applications)
    config: TransformerConfig, name: str = "transformer", dtype: Any = None
) -> TranslationModel:
    """The Transformer: from source and target ids to the logits of each next target token.

    Args:
        config: A `TransformerConfig`.
        name: The name of the model.
        dtype: The dtype policy of all layers, such as "mixed_bfloat16"; the global one by default.

    Returns:
        A `TranslationModel` of the inputs `source_ids` int `[batch, source]` and `target_ids` int
        `[batch, target]`, both padded with 0, with float32 logits `[batch, target, vocab]`; those
        at position t predict token t + 1.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762).

    >>> from keras_tfmr import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> model = Transformer(config)
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """
    _checks.instance("config", config, TransformerConfig)
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    if config.joint_vocab:
        source = target = embedding(config, config.target_vocab, "embedding", dtype)
    else:
        source = embedding(config, config.source_vocab, "source_embedding", dtype)
        target = embedding(config, config.target_vocab, "target_embedding", dtype)
    options = layer_options(config, bidirectional=True, dtype=dtype)
    encoder = Encoder(config.encoder_layers, name="encoder", **options)
    options = layer_options(config, bidirectional=False, dtype=dtype)
    decoder = Decoder(config.decoder_layers, name="decoder", **options)

    context = encoder(source(source_ids))  # [batch, source, d_model]
    x = decoder(target(target_ids), context)  # [batch, target, d_model]
    x = logits(config, target, x, dtype)  # [batch, target, vocab]
    return TranslationModel([source_ids, target_ids], x, name=name, config=config)


def TransformerLanguageModel(  # noqa: N802
    config: TransformerConfig, name: str = "language_model", dtype: Any = None
) -> LanguageModel:
    """The decoder alone: from token IDs to the logits of each next token.

    Args:
        config: A `TransformerConfig`; `target_vocab` and `decoder_layers` are its vocabulary
            and depth.
        name, dtype: As for `Transformer`.

    Returns:
        A `LanguageModel` of `token_ids` int `[batch, length]`, padded with 0, with float32 logits
        `[batch, length, vocab]`; those at position t predict token t + 1.

    Reference: Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences
    (arXiv 1801.10198).

    >>> from keras_tfmr import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", target_vocab=50, joint_vocab=False)
    >>> TransformerLanguageModel(config)(np.array([[2, 9, 4]])).shape
    TensorShape([1, 3, 50])
    """
    _checks.instance("config", config, TransformerConfig)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    tokens = embedding(config, config.target_vocab, "embedding", dtype)
    options = layer_options(config, bidirectional=False, dtype=dtype)
    decoder = CausalDecoder(config.decoder_layers, name="decoder", **options)

    x = decoder(tokens(token_ids))  # [batch, length, d_model]
    x = logits(config, tokens, x, dtype)  # [batch, length, vocab]
    return LanguageModel(token_ids, x, name=name, config=config)


def TransformerClassifier(  # noqa: N802
    config: TransformerConfig, num_classes: int, name: str = "classifier", dtype: Any = None
) -> keras.Model:
    """The encoder alone, the mean over its real positions, and one logit per class.

    Args:
        config: A `TransformerConfig`; `source_vocab` and `encoder_layers` are its vocabulary
            and depth.
        num_classes: Number of classes.
        name, dtype: As for `Transformer`.

    Returns:
        A `keras.Model` of `token_ids` int `[batch, length]`, padded with 0, with float32 logits
        `[batch, num_classes]`.

    >>> from keras_tfmr import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, joint_vocab=False)
    >>> TransformerClassifier(config, num_classes=3)(np.array([[5, 7, 0]])).shape
    TensorShape([1, 3])
    """
    _checks.instance("config", config, TransformerConfig)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    tokens = embedding(config, config.source_vocab, "embedding", dtype)
    options = layer_options(config, bidirectional=True, dtype=dtype)
    encoder = Encoder(config.encoder_layers, name="encoder", **options)

    x = encoder(tokens(token_ids))  # [batch, length, d_model]
    x = MeanOverTokens(dtype=dtype, name="mean")(x)  # [batch, d_model]
    x = LMHead(num_classes, dtype=dtype, name="logits")(x)  # [batch, num_classes]
    return FunctionalModel(token_ids, x, name=name, config=config)


# Not as decorators, which would hide the types of what they return. Presets state these names.
for function in (Transformer, TransformerLanguageModel, TransformerClassifier):
    keras.saving.register_keras_serializable(package="keras_tfmr")(function)


def embedding(config, vocab_size, name, dtype):
    """The `PositionalEmbedding` of a config."""
    if config.positions == "sinusoidal":
        positions = SinusoidalPositions(
            config.d_model, config.max_wavelength, dtype=dtype, name="positions"
        )
    elif config.positions == "learned":
        positions = LearnedPositions(
            config.max_length, config.d_model, dtype=dtype, name="positions"
        )
    else:
        positions = NoPositions(dtype=dtype, name="positions")
    return PositionalEmbedding(
        vocab_size,
        config.d_model,
        positions=positions,
        norm=norm(config) if config.embedding_norm else None,
        scaled=config.embedding_scale,
        logits_bias=config.tied_logits and bool(config.logits_bias),
        dtype=dtype,
        name=name,
    )


def embeddings_of(model):
    """The source and the target `PositionalEmbedding` of a model that `Transformer` made."""
    if model.config.joint_vocab:
        return (model.get_layer("embedding"),) * 2
    return model.get_layer("source_embedding"), model.get_layer("target_embedding")


def layer_options(config, *, bidirectional, dtype):
    """The options of an `Encoder` (bidirectional) or a decoder, but the number of layers."""
    return {
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "dff": config.dff,
        "relative_positions": relative_positions(config, bidirectional),
        "dropout_rate": config.dropout_rate,
        "attention_dropout_rate": config.attention_dropout_rate,
        "key_dim": config.key_dim,
        "num_kv_heads": config.num_kv_heads,
        "norm_first": config.norm_first,
        "activation": config.activation,
        "gated": config.gated,
        "use_bias": config.use_bias,
        "qk_norm": norm(config) if config.qk_norm else None,
        "norm": norm(config),
        "dtype": dtype,
    }


def relative_positions(config, bidirectional):
    """The layer of relative positions of a config, or None."""
    name = "relative_positions"
    if config.positions == "rotary":
        return RotaryPositions(config.head_width, config.max_wavelength, name=name)
    if config.positions == "relative":
        return RelativePositionBias(config.num_heads, bidirectional=bidirectional, name=name)
    return ALiBi(config.num_heads, name=name) if config.positions == "alibi" else None


def norm(config):
    """The normalisation layer of a config, to be copied."""
    kind = {"layer": LayerNormalization, "rms": RMSNormalization}[config.norm]
    return kind(config.norm_epsilon, name="norm")


def logits(config, target_embedding, x, dtype):
    """The logits of target tokens, of the decoder's output."""
    if config.tied_logits:
        return target_embedding(x, reverse=True)
    use_bias = config.logits_bias is not False
    return LMHead(config.target_vocab, use_bias=use_bias, dtype=dtype, name="logits")(x)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MeanOverTokens(MaskingLayer):
    """The mean of the vectors at real positions; zero for a sequence that has none.

    Call arguments:
        x: Tensor `[batch, length, d_model]`.
        mask: bool tensor `[batch, length]`, True = valid; by default the Keras mask of `x`.

    Returns:
        Tensor `[batch, d_model]`.

    >>> MeanOverTokens()(np.ones((2, 3, 8), "float32")).shape
    TensorShape([2, 8])
    """

    def call(self, x: Tensor, mask: Tensor | None = None) -> Nested:
        _checks.shaped("x", x, batch=None, length=None, d_model=None)
        mask = _checks.mask("mask", mask, batch=x.shape[0], length=x.shape[1])
        return ops.cast(masked_mean(x, mask), self.compute_dtype)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        return None
