"""Functional models of language: from token IDs to the logits of each next token."""

from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding import score
from keras_tfmr.faster.step import CachedStep, checked_prompt, rest_of
from keras_tfmr.faster.taken import why_not_cached
from keras_tfmr.layers import CausalDecoder
from keras_tfmr.models.graph import graph_of
from keras_tfmr.models.saving import FunctionalModel
from keras_tfmr.models.transformer_config import TransformerConfig
from keras_tfmr.models.whole_sequence import WholeSequenceStep


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LanguageModel(FunctionalModel):
    """An autoregressive density over sequences, p(x) = Π p(x_t | x_<t): a functional `keras.Model`.

    Its graph has one `CausalDecoder` over a `PositionalEmbedding` of the model's input. What lies
    between the decoder and the logits may be any layers that look at no later position.

    Args:
        inputs: The `keras.Input` of token IDs.
        outputs: The logits `[batch, length, vocab]`; those at position t predict token t + 1.
        name: The name of the model.
        config: The `TransformerConfig` it was made from; None for a model of your own.

    Raises:
        ValueError: If the graph cannot be decoded, as for `TranslationModel`.

    >>> from keras_tfmr.layers import CausalDecoder, LMHead, PositionalEmbedding
    >>> token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    >>> x = PositionalEmbedding(vocab_size=50, d_model=32)(token_ids)
    >>> x = CausalDecoder(num_layers=1, d_model=32, num_heads=2, dff=64)(x)
    >>> model = LanguageModel(token_ids, LMHead(50)(x))
    >>> model.log_prob(np.array([[2, 9, 4, 3], [2, 9, 3, 0]])).shape
    TensorShape([2])
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
        self.graph = graph_of(self, CausalDecoder)

    def log_prob(self, token_ids: Tensor) -> Tensor:
        """The log-probability of given sequences.

        Args:
            token_ids: int tensor `[batch, length]`, padded with 0. The first token of each sequence
                is a start token; the log-probabilities of the others are summed, without padding.

        Returns:
            float32 tensor `[batch]`, in nats.
        """
        return log_prob(self, token_ids)

    def why_not_cached(self) -> str | None:
        """Why `start` decodes by calling the model on all tokens so far; None if it has caches."""
        return why_not_cached(self.graph)

    def start(self, batch: Any, num_beams: int = 1, *, max_length: int) -> Nested:
        """Starts decoding, one token at a time.

        Args:
            batch: Number of examples.
            num_beams: Number of hypotheses per example.
            max_length: Number of tokens that can be decoded.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state.

        Raises:
            ValueError: If a number is not positive, or the model has learned fewer positions.
        """
        _checks.values("batch", batch, "int32", 0, _checks.LARGEST)
        self.graph.embedding.check_length(max_length)
        if self.why_not_cached() is None:
            step = CachedStep.of_layers(self.graph, num_beams, max_length)
        else:
            step = WholeSequenceStep(self.graph, num_beams, max_length)
        return step, step.start(batch)

    def start_after(self, prompt: Tensor, num_beams: int = 1, *, max_length: int) -> Nested:
        """Starts decoding after prompts.

        If there are caches, they are read in one pass. If the prompts differ in length, that pass
        reads as many tokens of each as the shortest prompt has. The remaining tokens of longer
        prompts are returned as a prefix, with which decoding has to begin.

        Args:
            prompt: int tensor `[batch, length]`, padded with 0 at the end; each prompt has at least
                one token, a start token.
            num_beams: Number of hypotheses per example.
            max_length: Number of tokens that can be decoded after the longest prompt.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, its first state, and two arguments of
            the `Examples`: `bos_ids` int32 `[batch]` and `prefix` int32 `[batch, length]`.

        Raises:
            ValueError: As for `start`, where the positions of the prompts count too; or if a known
                prompt is empty, padded elsewhere or not of the vocabulary.

        >>> from keras_tfmr import TransformerConfig, TransformerLanguageModel, decoding
        >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
        >>> model = TransformerLanguageModel(config)
        >>> prompt = np.array([[2, 9, 4], [2, 7, 0]])
        >>> step, state, bos_ids, prefix = model.start_after(prompt, max_length=5)
        >>> examples = decoding.Examples(bos_ids, eos_id=3, prefix=prefix)
        >>> how = decoding.DecodingConfig(num_beams=1, max_length=5)
        >>> int(decoding.search(step, state, how, examples).ids[0, 0, 0])
        4
        """
        prompt = checked_prompt(prompt, self.graph.embedding.vocab_size)
        length = ops.shape(prompt)[1]
        self.graph.embedding.check_length(length - 1 + max_length)
        if self.why_not_cached() is None:
            step, state = CachedStep.of_layers(self.graph, num_beams, max_length).after(prompt)
        else:
            step = WholeSequenceStep(self.graph, num_beams, max_length, before=length - 1)
            state = step.start(ops.shape(prompt)[0])
        return step, state, *rest_of(prompt, state["length"])


def log_prob(model: keras.Model, token_ids: Tensor) -> Tensor:
    """See `LanguageModel.log_prob`; of any model of the next token."""
    token_ids = ops.convert_to_tensor(token_ids)
    # The last one is no input of the model, which checks the others.
    token_ids = _checks.sequence_of_ids("token_ids", token_ids, model.output_shape[-1])
    return score(model(token_ids[:, :-1]), token_ids[:, 1:])[0]
