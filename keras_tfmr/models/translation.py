"""Functional models that translate: from source and target to the logits of each next token."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops, tree

from keras_tfmr import _checks
from keras_tfmr.config import Nested, Tensor
from keras_tfmr.decoding import DecodingConfig, DecodingResult, Examples, Sampling, search
from keras_tfmr.models.explain import AttentionScores
from keras_tfmr.models.next_token_model import NextTokenModel
from keras_tfmr.models.programs import padded_ids


@keras.saving.register_keras_serializable(package="keras_tfmr")
class TranslationModel(NextTokenModel):
    """A functional `keras.Model` from a source and `target_ids` to logits, which can be decoded.

    Its graph may be any composition. The input named `target_ids` holds the target tokens; the
    others, of any kind, are the source. The model decodes with caches if each layer that depends on
    the target ids states how: see docs/guide/from_layers.md. `why_not_cached` names a layer that
    does not; the whole model is then called on all tokens so far, which is slow. A layer that looks
    at later target positions is an error when the model decodes.

    Args:
        inputs: A list or dictionary of `keras.Input`.
        outputs: The logits `[batch, target, vocab]`; those at position t predict token t + 1.
            Several outputs are a dictionary, whose `logits` these are.
        name: The name of the model.
        config: The `TransformerConfig` it was made from; None for a model of your own.
        **kwargs: As for `keras.Model`.

    Raises:
        ValueError: If there is no source, no input is named `target_ids`, several outputs are not
            named, or the logits end in a softmax.

    >>> from keras_tfmr.layers import Decoder, LMHead, PositionalEmbedding
    >>> pictures = keras.Input((16, 16, 3), name="pictures")
    >>> target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    >>> context = keras.layers.Conv2D(32, 4, 4)(pictures)
    >>> context = keras.layers.Reshape((16, 32))(context)
    >>> x = PositionalEmbedding(vocab_size=50, d_model=32)(target_ids)
    >>> x = Decoder(num_layers=1, d_model=32, num_heads=2, dff=64)(x, context)
    >>> model = TranslationModel([pictures, target_ids], LMHead(50)(x))
    >>> picture = np.ones((1, 16, 16, 3), "float32")
    >>> model.generate(picture, bos_id=2, eos_id=3, max_length=5).ids.shape
    TensorShape([1, 1, 5])
    """

    target_name = "target_ids"
    least_inputs = 2

    def generate(
        self,
        source: Nested,
        *,
        bos_id: int | Tensor,
        eos_id: int | Sequence[int],
        max_length: int = DecodingConfig.max_length,
        min_length: int = DecodingConfig.min_length,
        num_beams: int = 1,
        num_return_sequences: int = 1,
        length_penalty: float = DecodingConfig.length_penalty,
        sampling: Sampling | None = None,
        prefix: Tensor | None = None,
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        fixed_shapes: bool | None = None,
    ) -> DecodingResult:
        """Encodes the source and decodes the target.

        Args:
            source: As for `start`.
            bos_id: The token ID that starts every target, or int `[batch]`, one for each.
            eos_id: The ID that ends a target, or several such IDs.
            max_length: The maximum number of tokens, the end included.
            min_length: The minimum number of tokens, the end included.
            num_beams: Number of hypotheses to keep; 1 takes the most probable token at every step.
            num_return_sequences: n, the number of hypotheses to return.
            length_penalty: See `DecodingConfig`.
            sampling: How tokens are drawn; needs `num_beams=1`.
            prefix: int `[batch, p]`, padded with 0, tokens that every hypothesis begins with.
            jit_compile: Whether XLA compiles the search, once for the options and sizes of a call.
                "auto" means that it does if it can, on TensorFlow and JAX. Without XLA, TensorFlow
                makes a graph for all sizes, and JAX and PyTorch run each operation by itself.
            run_eagerly: Whether to run it operation by operation.
            fixed_shapes: As for `start`: True inside your own `tf.function(jit_compile=True)`.

        Returns:
            A `DecodingResult`: `ids` int32 `[batch, n, max_length]`, padded with 0, and their
            `lengths`, `log_probs` and `scores`, best first.

        Raises:
            ValueError: As for `start` and `decoding.search`.
        """
        config = DecodingConfig(
            num_beams=num_beams,
            num_return_sequences=num_return_sequences,
            length_penalty=length_penalty,
            max_length=max_length,
            min_length=min_length,
        )
        sources = self.source_list(source)
        batch = sources[0].shape[0]
        axes = {"batch": batch} if len(np.shape(bos_id)) else {}
        bos_id = _checks.tensor("bos_id", bos_id, "int32", 0, self.vocab_size - 1, **axes)
        bos_ids = ops.zeros((ops.shape(sources[0])[0],), "int32") + bos_id
        tensors = {"sources": sources, "bos_ids": bos_ids}
        if prefix is not None:
            tensors["prefix"] = _checks.padded_ids(
                "prefix", prefix, self.vocab_size - 1, batch=batch, length=None
            )
        return self.generated(
            tensors, config, bos_ids, eos_id, sampling, jit_compile, run_eagerly, fixed_shapes
        )

    def search_of(self, tensors, options):
        """See `NextTokenModel.search_of`; of `sources`, `bos_ids` and perhaps `prefix`."""
        config, bos_ids = options.config, tensors["bos_ids"]
        batch, sampling = ops.shape(bos_ids)[0], tensors.get("sampling")
        step, state = self.step_and_state(
            tensors["sources"], batch, config.num_beams, config.max_length, options.fixed_shapes
        )
        examples = Examples(
            bos_ids, options.eos_ids, prefix=tensors.get("prefix"),
            max_lengths=tensors.get("max_lengths"),
        )  # fmt: skip
        return search(step, state, config, examples, choose=sampling and Sampling(**sampling))

    def wider(self, tensors, options):
        """Prefixes, and the source ids of a model of ours, which do not see padding."""
        most = self.learned_positions()
        if "prefix" in tensors:
            tensors = {**tensors, "prefix": padded_ids(tensors["prefix"])}
        if self.config is None:
            return tensors
        return {**tensors, "sources": [padded_ids(ids, most) for ids in tensors["sources"]]}

    def start(
        self,
        source: Nested,
        num_beams: int = 1,
        *,
        max_length: int,
        fixed_shapes: bool | None = None,
    ) -> Nested:
        """Encodes the source and starts decoding, one token at a time.

        Args:
            source: The input other than the target ids, such as int `[batch, source]`, padded with
                0; of several, a dictionary by their names.
            num_beams: Number of hypotheses per example.
            max_length: Number of tokens that can be decoded.
            fixed_shapes: Whether the shapes of the state stay the same, as XLA needs; by default,
                on JAX alone. If not, caches grow, and examples that have ended leave the batch.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state.

        Raises:
            ValueError: If a number is not positive, the model has learned fewer positions, or the
                source has other names.
        """
        sources = self.source_list(source)
        batch = ops.shape(sources[0])[0]
        return self.step_and_state(sources, batch, num_beams, max_length, fixed_shapes)

    def explain(self, source: Nested, target_ids: Tensor) -> tuple[Tensor, AttentionScores]:
        """The logits, and what each position attended to.

        Args:
            source: As for `start`.
            target_ids: int tensor `[batch, target]`, padded with 0.

        Returns:
            Logits `[batch, target, vocab]` and the `AttentionScores` of the attention layers, in
            the order of the graph.
        """
        inputs = self.source_list(source)
        last = self.vocab_size - 1
        target_ids = _checks.tensor(
            "target_ids", target_ids, "int32", 0, last, batch=None, target=None
        )
        inputs.insert(self.target_place, target_ids)
        outputs, scores = self.derived.explaining(tree.pack_sequence_as(self.input, inputs))
        return outputs[self.logits_place], AttentionScores(*scores)
