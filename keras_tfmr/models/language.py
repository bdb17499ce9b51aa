"""The decoder-only language model."""

import keras
from keras import ops

from keras_tfmr.decoding import score
from keras_tfmr.layers import DecoderOnly
from keras_tfmr.models import _parts


@keras.saving.register_keras_serializable(package="keras_tfmr")
class LanguageModel(_parts.ConfiguredModel):
    """An autoregressive density over sequences: p(x) = Π p(x_t | x_<t).

    Args:
        config: A `TransformerConfig`; `target_vocab` and `decoder_layers` are its vocabulary
            and depth.

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

    def __init__(self, config, name="language"):
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        embedding = _parts.embedding(config, config.target_vocab, "embedding")
        decoder = DecoderOnly(
            **_parts.stack_arguments(config, config.decoder_layers),
            embedding=embedding,
            name="decoder",
        )
        logits = _parts.logits(config, embedding)
        super().__init__(inputs=token_ids, outputs=logits(decoder(token_ids)), name=name)
        self.config = config
        self.decoder, self.logits = decoder, logits

    def log_prob(self, token_ids):
        """The log-probability of given sequences.

        Args:
            token_ids: int tensor `[batch, length]`: the first token is given (a start token),
                the log-probabilities of those after it are summed, padding (0) left out.

        Returns:
            float32 tensor `[batch]`, in nats.
        """
        token_ids = ops.convert_to_tensor(token_ids)
        return score(self(token_ids[:, :-1]), token_ids[:, 1:])[0]

    def start(self, rows, *, max_length):
        """Begins to decode, one token at a time: see `TranslationModel.start`.

        Args:
            rows: Number of hypotheses.
            max_length: Number of tokens that can be decoded.
        """

        def step(tokens, state):
            x, caches = self.decoder.step(tokens[:, None], state["caches"], state["index"])
            log_probs = ops.log_softmax(self.logits(x[:, 0]), axis=-1)  # [rows, vocab]
            return log_probs, {"index": state["index"] + 1, "caches": caches}

        step.max_length = max_length
        state = {
            "index": ops.zeros((), "int32"),
            "caches": self.decoder.caches(rows, max_length),
        }
        return step, state
