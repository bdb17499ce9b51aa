"""Functional models that translate: from source and target to the logits of each next token."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_tfmr.compat import keras_mask
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.faster.step import CachedStep
from keras_tfmr.faster.taken import why_not_cached
from keras_tfmr.layers import Decoder
from keras_tfmr.models.graph import graph_of
from keras_tfmr.models.saving import FunctionalModel
from keras_tfmr.models.transformer_config import TransformerConfig
from keras_tfmr.models.whole_sequence import WholeSequenceStep


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
class TranslationModel(FunctionalModel):
    """A functional `keras.Model` that ends in logits over target tokens, and can be decoded.

    Its graph has one `Decoder`, whose first input is a `PositionalEmbedding` of an input of the
    model, the target ids. What lies before the decoder's context may be any layers over any other
    inputs: ids, vectors, pictures. What lies between the decoder and the logits may be any layers
    that look at no later position.

    Args:
        inputs: A list or dictionary of `keras.Input`.
        outputs: The logits `[batch, target, vocab]`; those at position t predict token t + 1.
        name: The name of the model.
        config: The `TransformerConfig` it was made from; None for a model of your own.

    Raises:
        ValueError: If the graph cannot be decoded: without or with several decoders, with target
            ids that are changed before the decoder, or with a context that depends on them.

    >>> from keras_tfmr.layers import Decoder, LMHead, PositionalEmbedding
    >>> pictures = keras.Input((16, 16, 3), name="pictures")
    >>> target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    >>> context = keras.layers.Conv2D(32, 4, 4)(pictures)
    >>> context = keras.layers.Reshape((16, 32))(context)
    >>> x = PositionalEmbedding(vocab_size=50, d_model=32)(target_ids)
    >>> x = Decoder(num_layers=1, d_model=32, num_heads=2, dff=64)(x, context)
    >>> model = TranslationModel([pictures, target_ids], LMHead(50)(x))
    >>> step, state = model.start(np.ones((1, 16, 16, 3), "float32"), max_length=5)
    >>> from keras_tfmr import decoding
    >>> examples = decoding.Examples(bos_ids=[2], eos_id=3)
    >>> config = decoding.DecodingConfig(num_beams=1, max_length=5)
    >>> decoding.search(step, state, config, examples).ids.shape
    TensorShape([1, 1, 5])
    """

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        name: str | None = None,
        *,
        config: TransformerConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(inputs, outputs, name=name, config=config, **kwargs)
        self.graph = graph_of(self, Decoder)

    def why_not_cached(self) -> str | None:
        """Why `start` decodes by calling the model on all tokens so far; None if it has caches."""
        return why_not_cached(self.graph)

    def start(self, source: Nested, num_beams: int = 1, *, max_length: int) -> Nested:
        """Encodes the source and starts decoding, one token at a time.

        Args:
            source: The inputs other than the target ids, such as int `[batch, source]`, padded
                with 0; a list or a dictionary if there are several.
            num_beams: Number of hypotheses per example.
            max_length: Number of tokens that can be decoded.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state. A decoder of this
            package's layers has caches, and examples that have ended leave the batch; for others,
            see `why_not_cached`. JAX always has fixed shapes.

        Raises:
            ValueError: If a number is not positive, or the model has learned fewer positions.
        """
        self.graph.embedding.check_length(max_length)
        context, mask = self.graph.encoded(source)
        if self.why_not_cached() is None:
            step = CachedStep.of_layers(self.graph, num_beams, max_length, context, mask)
        else:
            step = WholeSequenceStep(self.graph, num_beams, max_length, context, mask)
        return step, step.start(ops.shape(context)[0])

    def explain(self, source: Nested, target_ids: Tensor) -> tuple[Tensor, AttentionScores]:
        """The logits, and what each position attended to.

        Args:
            source: As for `start`.
            target_ids: int tensor `[batch, target]`, padded with 0.

        Returns:
            float32 logits `[batch, target, vocab]` and the `AttentionScores`; those of the encoder
            only if it is an `Encoder` of embedded ids and nothing else.
        """
        graph, encoder_scores = self.graph, []
        if graph.encoder is None:
            context, mask = graph.encoded(source)
        else:
            x = graph.source_embedding(source)  # [batch, source, d_model]
            mask = keras_mask(x)
            context, encoder_scores = graph.encoder(x, return_attention_scores=True)
        x, self_scores, cross_scores = graph.decoder(
            graph.embedding(target_ids), context, context_mask=mask, return_attention_scores=True
        )
        return graph.head(x), AttentionScores(cross_scores, encoder_scores, self_scores)
