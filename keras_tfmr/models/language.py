"""Functional models of language: from token IDs to the logits of each next token."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding import DecodingConfig, DecodingResult, Examples, Sampling, score, search
from keras_tfmr.models.model_step import CachedStep
from keras_tfmr.models.next_token_model import NextTokenModel
from keras_tfmr.models.programs import padded_ids
from keras_tfmr.models.prompts import behind_prompts, checked_prompt, rest_of


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LanguageModel(NextTokenModel):
    """An autoregressive density over sequences, p(x) = Π p(x_t | x_<t): a functional `keras.Model`.

    Its graph may be any composition, as for `TranslationModel`. The only input, or the one named
    `token_ids`, holds the tokens.

    Args:
        inputs: The `keras.Input` of token IDs; with others, a list or dictionary.
        outputs: The logits `[batch, length, vocab]`; those at position t predict token t + 1.
            Several outputs are a dictionary, whose `logits` these are.
        name: The name of the model.
        config: The `TransformerConfig` it was made from; None for a model of your own.
        **kwargs: As for `keras.Model`.

    Raises:
        ValueError: As for `TranslationModel`.

    >>> from keras_tfmr.layers import CausalDecoder, LMHead, PositionalEmbedding
    >>> token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    >>> x = PositionalEmbedding(vocab_size=50, d_model=32)(token_ids)
    >>> x = CausalDecoder(num_layers=1, d_model=32, num_heads=2, dff=64)(x)
    >>> model = LanguageModel(token_ids, LMHead(50)(x))
    >>> model.log_prob(np.array([[2, 9, 4, 3], [2, 9, 3, 0]])).shape
    TensorShape([2])
    >>> model.generate(np.array([[2, 9], [2, 0]]), eos_id=3, max_length=4).ids.shape
    TensorShape([2, 1, 6])
    """

    target_name = "token_ids"

    def log_prob(self, token_ids: Tensor) -> Tensor:
        """The log-probability of given sequences.

        Args:
            token_ids: int tensor `[batch, length]`, padded with 0. The first token of each sequence
                is a start token; the log-probabilities of the others are summed, without padding.

        Returns:
            float32 tensor `[batch]`, in nats.
        """
        return log_prob(self, token_ids)

    def generate(
        self,
        prompt: Tensor,
        *,
        eos_id: int | Sequence[int],
        source: Nested = None,
        max_length: int = DecodingConfig.max_length,
        num_beams: int = 1,
        num_return_sequences: int = 1,
        length_penalty: float = 0.0,
        sampling: Sampling | None = None,
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        fixed_shapes: bool | None = None,
    ) -> DecodingResult:
        """Goes on with prompts.

        Args:
            prompt: As for `start_after`.
            eos_id: The ID that ends a sequence, or several such IDs.
            source: As for `start`.
            max_length: The maximum number of tokens after each prompt, the end included.
            num_beams: Number of hypotheses to keep; 1 takes the most probable token at every step.
            num_return_sequences: n, the number of hypotheses to return.
            length_penalty: See `DecodingConfig`.
            sampling: How tokens are drawn; needs `num_beams=1`.
            jit_compile, run_eagerly, fixed_shapes: As for `TranslationModel.generate`.

        Returns:
            A `DecodingResult`, best first. Its `ids` int32 `[batch, n, prompt + max_length]` and
            `lengths` include the prompts. Its `log_probs` and `scores` are those of the tokens
            behind each prompt, whatever the other prompts are.

        Raises:
            ValueError: As for `start_after` and `decoding.search`.
        """
        prompt = checked_prompt(prompt, self.vocab_size)
        config = DecodingConfig(
            num_beams=num_beams,
            num_return_sequences=num_return_sequences,
            length_penalty=length_penalty,
            max_length=max_length,
        )
        tensors = {"prompt": prompt, "sources": self.source_list(source)}
        result = self.generated(
            tensors, config, prompt[:, 0], eos_id, sampling, jit_compile, run_eagerly, fixed_shapes
        )
        ids = result.ids[:, :, : ops.shape(prompt)[1] + max_length]
        return result._replace(ids=ids)

    def search_of(self, tensors, options):
        """See `NextTokenModel.search_of`; of `sources` and `prompt`. The ids hold the prompts."""
        config, prompt, sampling = options.config, tensors["prompt"], tensors.get("sampling")
        step, state, bos_ids, rest = self._after(
            prompt, config.num_beams, config.max_length, tensors["sources"], options.fixed_shapes
        )
        examples = Examples(
            bos_ids, options.eos_ids, prompt=rest, max_lengths=tensors.get("max_lengths")
        )
        result = search(step, state, config, examples, choose=sampling and Sampling(**sampling))
        return behind_prompts(prompt, result)

    def wider(self, tensors, options):
        """Prompts of one of a few lengths."""
        most = self.learned_positions()
        most = most and most + 1 - options.config.max_length
        return {**tensors, "prompt": padded_ids(tensors["prompt"], most)}

    def start(
        self,
        batch: Any,
        num_beams: int = 1,
        *,
        max_length: int,
        source: Nested = None,
        fixed_shapes: bool | None = None,
    ) -> Nested:
        """Starts decoding, one token at a time.

        Args:
            batch: Number of examples.
            num_beams: Number of hypotheses per example.
            max_length: Number of tokens that can be decoded.
            source: The other inputs, if the model has some: as for `TranslationModel.start`.
            fixed_shapes: As for `TranslationModel.start`.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state.

        Raises:
            ValueError: If a number is not positive, or the model has learned fewer positions.
        """
        _checks.values("batch", batch, "int32", 0, _checks.LARGEST)
        sources = self.source_list(source)
        return self.step_and_state(sources, batch, num_beams, max_length, fixed_shapes)

    def start_after(
        self,
        prompt: Tensor,
        num_beams: int = 1,
        *,
        max_length: int,
        source: Nested = None,
        fixed_shapes: bool | None = None,
    ) -> Nested:
        """Starts decoding after prompts.

        One pass reads as many tokens of each prompt as the shortest one has, all but the last. The
        search feeds the remaining tokens of longer prompts before it decodes.

        Args:
            prompt: int tensor `[batch, length]`, padded with 0 at the end; each prompt has at least
                one token, a start token.
            num_beams: Number of hypotheses per example.
            max_length: Number of tokens that can be decoded after the longest prompt.
            source, fixed_shapes: As for `start`.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, its first state, and two arguments of
            the `Examples`: `bos_ids` int32 `[batch]` and `prompt` int32 `[batch, length - 1]`.

        Raises:
            ValueError: As for `start`, where the positions of the prompts count too; or if a known
                prompt is empty, padded elsewhere or not of the vocabulary.

        >>> from keras_tfmr import TransformerConfig, TransformerLanguageModel, decoding
        >>> config = TransformerConfig.preset("tiny", source_vocab=50, target_vocab=50)
        >>> model = TransformerLanguageModel(config)
        >>> prompt = np.array([[2, 9, 4], [2, 7, 0]])
        >>> step, state, bos_ids, rest = model.start_after(prompt, max_length=5)
        >>> np.array(bos_ids).tolist(), np.array(rest).tolist()
        ([9, 7], [[4, 0], [0, 0]])
        >>> examples = decoding.Examples(bos_ids, eos_id=3, prompt=rest)
        >>> how = decoding.DecodingConfig(num_beams=1, max_length=5)
        >>> decoding.search(step, state, how, examples).ids.shape
        TensorShape([2, 1, 5])
        """
        prompt = checked_prompt(prompt, self.vocab_size)
        sources = self.source_list(source)
        return self._after(prompt, num_beams, max_length, sources, fixed_shapes)

    def _after(self, prompt, num_beams, max_length, sources, fixed_shapes):
        """As `start_after`, of checked prompts and the list of sources."""
        batch, length = ops.shape(prompt)
        step, state = self.step_and_state(
            sources, batch, num_beams, max_length, fixed_shapes, before=length - 1
        )
        has_caches = isinstance(step, CachedStep)
        reading = self.derived.step(1, not step.shrinks) if has_caches else None
        step, state = step.after(prompt, state, reading)
        return step, state, *rest_of(prompt, state["length"])


def log_prob(model: keras.Model, token_ids: Tensor) -> Tensor:
    """See `LanguageModel.log_prob`; of any model of the next token."""
    # The last one is no input of the model, which checks the others.
    last = model.output_shape[-1] - 1
    token_ids = _checks.tensor("token_ids", token_ids, "int32", 0, last, batch=None, length=None)
    return score(model(token_ids[:, :-1]), token_ids[:, 1:])[0]
