"""The encoder–decoder model of the paper."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding.transformer_step import SSRUStep, TransformerStep
from keras_tfmr.layers import Decoder, Encoder, SSRUDecoder
from keras_tfmr.layers.base import dtype_policy
from keras_tfmr.models import _parts
from keras_tfmr.models.transformer_config import TransformerConfig


class AttentionScores(NamedTuple):
    """Attention weights by layer and head: lists over layers, empty if the model has no such part.

    Attributes:
        cross: Cross-attention of the decoder, `[batch, heads, target, source]`.
        encoder: Self-attention of the source, `[batch, heads, source, source]`.
        decoder: Self-attention of the target, `[batch, heads, target, target]`.
    """

    cross: list
    encoder: list = ()
    decoder: list = ()


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TranslationModel(_parts.ConfiguredModel, keras.Model):
    """The Transformer: from source and target ids to the logits of each next target token.

    Its layers `encoder`, `decoder` and `logits` can be used in other models.

    Args:
        config: A `TransformerConfig`.
        name: The name of the model.
        dtype: The dtype policy of all layers, such as "mixed_bfloat16"; the global one by default.

    Call arguments:
        inputs: A list of `source_ids` int `[batch, source]` and `target_ids` int
            `[batch, target]`, both padded with 0.

    Returns:
        float32 logits `[batch, target, vocab]`; the ones at position t predict token t + 1.

    Reference: Vaswani et al. 2017, Attention Is All You Need (arXiv 1706.03762).

    >>> from keras_tfmr import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
    >>> model = TranslationModel(config)
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """

    def __init__(
        self, config: TransformerConfig, name: str = "translation", dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        _checks.instance("config", config, TransformerConfig)
        self.config = config
        decoder = {"attention": Decoder, "ssru": SSRUDecoder}[config.decoder_self]
        with dtype_policy(self.dtype_policy):
            if config.joint_vocab:
                source = target = _parts.embedding(config, config.target_vocab, "embedding")
            else:
                source = _parts.embedding(config, config.source_vocab, "source_embedding")
                target = _parts.embedding(config, config.target_vocab, "target_embedding")
            self.encoder = _parts.stack(Encoder, config, config.encoder_layers, source, "encoder")
            self.decoder = _parts.stack(decoder, config, config.decoder_layers, target, "decoder")
            self.logits = _parts.head(config, target)
        self.finish_building("source_ids", "target_ids")

    def call(self, inputs: Tensor, training: bool | None = None) -> Nested:
        source_ids, target_ids = _parts.tensors(inputs, "source_ids", "target_ids")
        context = self.encoder(source_ids, training=training)  # [batch, source, d_model]
        return self.logits(self.decoder(target_ids, context, training=training))

    def start(self, source_ids: Tensor, num_beams: int = 1, *, max_length: int) -> Nested:
        """Encodes the source and starts decoding, one token at a time.

        Args:
            source_ids: int tensor `[batch, source]`, padded with 0.
            num_beams: Number of hypotheses per sentence.
            max_length: Number of tokens that can be decoded.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state. Caches grow, and
            sentences that have ended leave the batch; set `step.shrinks = False` for a search
            inside `tf.function(jit_compile=True)`. JAX always has fixed shapes.

        Raises:
            ValueError: If the model has learned fewer positions.
        """
        source_ids = ops.convert_to_tensor(source_ids)
        context = self.encoder(source_ids)
        kind = {"attention": TransformerStep, "ssru": SSRUStep}[self.config.decoder_self]
        step = kind(
            self.decoder,
            self.logits,
            ops.shape(context)[0],
            self.decoder.context_cache(context, ops.not_equal(source_ids, 0)),
            num_beams=num_beams,
            max_length=max_length,
        )
        return step, step.start()

    def explain(self, source_ids: Tensor, target_ids: Tensor) -> tuple[Tensor, AttentionScores]:
        """The logits, and what each position attended to.

        Args:
            source_ids: int tensor `[batch, source]`, padded with 0.
            target_ids: int tensor `[batch, target]`, padded with 0.

        Returns:
            float32 logits `[batch, target, vocab]` and the `AttentionScores`.
        """
        context, encoder_scores = self.encoder(source_ids, return_attention_scores=True)
        x, *decoder_scores, cross_scores = self.decoder(
            target_ids,
            context,
            context_mask=ops.not_equal(source_ids, 0),
            return_attention_scores=True,
        )
        return self.logits(x), AttentionScores(cross_scores, encoder_scores, *decoder_scores)
