"""The decoder-only language model."""

from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding import checks
from keras_tfmr.decoding.transformer_step import TransformerStep
from keras_tfmr.layers import CausalDecoder
from keras_tfmr.layers.base import dtype_policy
from keras_tfmr.models import _parts
from keras_tfmr.models.transformer_config import TransformerConfig


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LanguageModel(_parts.NextTokenModel, keras.Model):
    """An autoregressive density over sequences: p(x) = Π p(x_t | x_<t).

    Args:
        config: A `TransformerConfig`; `target_vocab` and `decoder_layers` are its vocabulary
            and depth.
        name, dtype: As for `TranslationModel`.

    Call arguments:
        inputs: `token_ids` int `[batch, length]`, padded with 0.

    Returns:
        float32 logits `[batch, length, vocab]`; the ones at position t predict token t + 1.

    Reference: Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences
    (arXiv 1801.10198).

    >>> from keras_tfmr import TransformerConfig
    >>> model = LanguageModel(TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> model.log_prob(np.array([[2, 9, 4, 3], [2, 9, 3, 0]])).shape
    TensorShape([2])
    """

    def __init__(
        self, config: TransformerConfig, name: str = "language", dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        _checks.instance("config", config, TransformerConfig)
        self.config = config
        layers = config.decoder_layers
        with dtype_policy(self.dtype_policy):
            embedding = _parts.embedding(config, config.target_vocab, "embedding")
            self.decoder = _parts.stack(CausalDecoder, config, layers, embedding, "decoder")
            self.logits = _parts.head(config, embedding)
        self.finish_building("token_ids")

    def call(self, inputs: Tensor, training: bool | None = None) -> Nested:
        (token_ids,) = _parts.tensors(inputs, "token_ids")
        return self.logits(self.decoder(token_ids, training=training))

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
        checks.values("batch", batch, "int32", 0, checks.LARGEST)
        step = TransformerStep(
            self.decoder, self.logits, batch, num_beams=num_beams, max_length=max_length
        )
        return step, step.start()

    def start_after(self, prompt: Tensor, num_beams: int = 1, *, max_length: int) -> Nested:
        """Starts decoding after prompts, which are read in one pass.

        If the prompts differ in length, that pass reads as many tokens of each as the shortest
        prompt has. The remaining tokens of longer prompts are returned as a prefix, with which
        decoding has to begin.

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

        >>> from keras_tfmr import TransformerConfig, decoding
        >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
        >>> model = LanguageModel(config)
        >>> prompt = np.array([[2, 9, 4], [2, 7, 0]])
        >>> step, state, bos_ids, prefix = model.start_after(prompt, max_length=5)
        >>> examples = decoding.Examples(bos_ids, eos_id=3, prefix=prefix)
        >>> how = decoding.DecodingConfig(num_beams=1, max_length=5)
        >>> int(decoding.search(step, state, how, examples).ids[0, 0, 0])
        4
        """
        prompt = checks.padded_ids(
            "prompt", prompt, self.config.target_vocab - 1, 1, batch=None, length=None
        )
        step = TransformerStep(
            self.decoder, self.logits, ops.shape(prompt)[0], num_beams=num_beams,
            max_length=max_length, prompt_length=prompt.shape[1],
        )  # fmt: skip
        return step, *step.start_after(prompt)
