"""Completers: a language model with its tokenizer, from prompts to their continuations."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_tfmr import decoding
from keras_tfmr.models import LanguageModel
from keras_tfmr.signatures.answers import Completion, Likelihood
from keras_tfmr.signatures.inputs import sampling_of, text_of, utf8
from keras_tfmr.signatures.signature import COMPLETE, COMPLETE_GREEDILY, LOG_PROB
from keras_tfmr.text.strings import Text
from keras_tfmr.text.tokenizer import Tokenizer, most_characters, valid_utf8
from keras_tfmr.text_models.text_model import BATCH, TextModel, shifted, traced

_BEGINS_WITH_SPACE = r"(?s)\x{2581}.*"
# Prompts are padded to one of these lengths, because the pass that reads them needs a fixed one.
_PROMPT_LENGTHS = (32, 128)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Completer(TextModel):
    """Continues texts and computes their log-probabilities, with a language model.

    Args:
        model: A `LanguageModel`.
        tokenizer: A `SubwordTokenizer`.
        max_length: Maximum number of tokens read of a text; of a longer prompt, the last ones.
        max_new_tokens: Maximum number of tokens of a completion.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If the vocabulary or the lengths do not fit the model.

    >>> from keras_tfmr import SubwordTokenizer, TransformerConfig, TransformerLanguageModel
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> config = TransformerConfig.preset("tiny", target_vocab=tokenizer.vocab_size,
    ...     joint_vocab=False)
    >>> completer = Completer(TransformerLanguageModel(config), tokenizer)
    >>> [completion] = completer.complete(["the black"], length=4, temperature=0.8, seed=1)
    >>> completion.tokens <= 4 and completion.log_prob < 0
    True
    """

    options = ("max_length", "max_new_tokens")

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        *,
        max_length: int = 128,
        max_new_tokens: int = 128,
    ) -> None:
        super().__init__(model, {"text": tokenizer}, max_length)
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1. Received: {max_new_tokens}")
        self.tokenizer, self.max_new_tokens = tokenizer, max_new_tokens
        if isinstance(model, LanguageModel):  # else one that was made from a checked one
            self._check_vocabulary(model.output_shape[-1], tokenizer)
            [name] = [tensor.name for tensor in model.inputs]
            model.check_lengths(**{name: max_length + max_new_tokens})
        self._trace()

    def _trace(self):
        max_length = self.max_length
        shorter = (length for length in _PROMPT_LENGTHS if length < max_length)
        self._searches = {length: self._traced_search(length) for length in (*shorter, max_length)}
        self._serve(
            (COMPLETE_GREEDILY, self._complete_greedily),
            (COMPLETE, self._complete),
            (LOG_PROB, self._log_prob),
        )

    def complete(
        self,
        prompts: Iterable[Text],
        *,
        length: int = 64,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        batch_size: int = BATCH,
    ) -> list[Completion]:
        """One continuation of each prompt, in order.

        Args:
            prompts: List of str or bytes; an empty one starts a new text.
            length: Maximum number of tokens of a completion, at most `max_new_tokens`.
            temperature: Log-probabilities are divided by it; 0 for the most probable tokens.
            top_k: Draw from the k most probable tokens only; 0 for all.
            top_p: Draw from the smallest set of most probable tokens whose probabilities sum to p
                or more; 1 for all.
            seed: An int; prompt i is completed with seed + i. The same seed and options give the
                same text, whatever the other prompts are. None draws a new seed at each call.
            batch_size: The number of prompts, of similar length, that are answered together.

        Raises:
            TypeError, ValueError: If an option is no number or out of range.
        """
        inputs = sampling_of(prompts, length, temperature, top_k, top_p, seed)
        if length > self.max_new_tokens:
            raise ValueError(
                f"length must be at most max_new_tokens={self.max_new_tokens}. Received: {length}"
            )
        return self._answers(COMPLETE, inputs, batch_size)

    def log_prob(self, texts: Iterable[Text], batch_size: int = BATCH) -> list[Likelihood]:
        """The log-probability of each whole text, its end included, in order.

        Texts of similar length are read `batch_size` at a time.
        """
        return self._answers(LOG_PROB, text_of(texts), batch_size)

    def get_config(self) -> dict[str, Any]:
        return {"max_length": self.max_length, "max_new_tokens": self.max_new_tokens}

    @classmethod
    def _made_of(cls, config, model, source, target):
        return cls(model, target, **config)

    def sides(self) -> tuple[Any, Any]:
        return self.tokenizer, self.tokenizer

    def calibration_inputs(self, texts: Sequence[Text]) -> list[Any]:
        if not texts:
            return []
        ids, _ = self.tokenizer.encode_truncated(
            tf.constant([utf8(text) for text in texts]), self.max_length
        )
        return [shifted(ids, self.tokenizer.bos_id)]

    def _complete(self, prompt, length, temperature, top_k, top_p, seed):
        """Prompts string [batch], and options for each -> their continuations.

        Returns `text` string, `log_prob` float32, `tokens` int32, `finished` and `truncated` bool,
        all [batch]: see `Completion`. `truncated` means that only the end of a prompt was read.
        Options never cause an error, because it would fail the whole batch: a length is clipped to
        the allowed range, a temperature that is not positive takes the most probable token, a
        `top_k` of 0 or less draws from all tokens, and a `top_p` of 0 or less from the most
        probable one.
        """
        options = (length, temperature, top_k, top_p, seed)
        tf.debugging.assert_equal(
            tf.stack([tf.size(tf.ensure_shape(option, [None])) for option in options]),
            tf.size(prompt),
            "prompt, length, temperature, top_k, top_p and seed must have the same batch size",
        )
        width = self.max_new_tokens
        noise = tf.map_fn(
            lambda number: tf.random.stateless_uniform([width], tf.stack([number, 0])),
            seed,
            fn_output_signature=tf.TensorSpec([width], tf.float32),
        )  # row by row, so that the noise of a row does not depend on the others
        return self._completed(prompt, length, noise, temperature, top_k, top_p)

    def _complete_greedily(self, prompt):
        """`prompt` string [batch] -> as `complete` at temperature 0, up to `max_new_tokens`."""
        rows = tf.size(prompt)
        return self._completed(
            prompt,
            tf.fill([rows], self.max_new_tokens),
            tf.zeros([rows, self.max_new_tokens]),
            tf.zeros([rows]),
            tf.zeros([rows], tf.int32),
            tf.ones([rows]),
        )

    def _completed(self, prompt, length, *sampling):
        ids, truncated = self._prompt_ids(prompt)
        new_ids, log_prob = self._decode(ids, length, sampling)
        return {
            "text": self._continued(new_ids, ids[: tf.size(prompt), 0] != 0),
            "log_prob": log_prob,
            "tokens": tf.reduce_sum(tf.cast(new_ids != 0, tf.int32), axis=1),
            "finished": tf.reduce_any(new_ids == self.tokenizer.eos_id, axis=1),
            "truncated": truncated,
        }

    def _traced_search(self, longest):
        """The function that decodes after prompts of at most `longest` tokens."""
        return traced(
            self._search_graph,
            prompt_ids=([None, 1 + longest], tf.int32),
            wanted=tf.int32,
            noise=([None, self.max_new_tokens], tf.float32),
            temperature=tf.float32,
            top_k=tf.int32,
            top_p=tf.float32,
        )

    def _decode(self, ids, length, sampling):
        """Prompts [rows, prompt] -> new ids [batch, new] and their log-probability [batch]."""
        rows, (more, longest) = tf.size(length), tf.unstack(tf.shape(ids))
        more -= rows  # 1 for an empty batch
        wanted = tf.clip_by_value(length, 0, self.max_new_tokens)
        inputs = [
            tf.pad(x, [[0, more], *[[0, 0]] * (len(x.shape) - 1)]) for x in (wanted, *sampling)
        ]

        def decode(search, width):
            start, end = [[0, 0], [1, 0]], [[0, 0], [0, width - longest]]
            padded = tf.pad(tf.pad(ids, end), start, constant_values=self.tokenizer.bos_id)
            return search(tf.ensure_shape(padded, [None, 1 + width]), *inputs)

        widths = [*self._searches]
        new_ids, log_prob = tf.switch_case(
            tf.reduce_sum(tf.cast(tf.constant(widths) < longest, tf.int32)),
            [functools.partial(decode, self._searches[width], width) for width in widths],
        )
        return new_ids[:rows], log_prob[:rows]

    def _search_graph(self, prompt_ids, wanted, noise, temperature, top_k, top_p):
        """From prompt ids to new ids and log-probabilities."""
        step, state, bos_ids, rest = self.model.start_after(
            prompt_ids, max_length=self.max_new_tokens
        )
        result = decoding.search(
            step,
            state,
            decoding.DecodingConfig(
                num_beams=1, length_penalty=0.0, max_length=self.max_new_tokens
            ),
            decoding.Examples(
                bos_ids,
                self.tokenizer.eos_id,
                banned_ids=decoding.banned_ids(self.tokenizer),
                prompt=rest,
                max_lengths=wanted,
            ),
            choose=decoding.Sampling(
                noise=noise, temperature=temperature, top_k=top_k, top_p=top_p
            ),
        )
        return result.ids[:, 0], result.log_probs[:, 0]

    def _prompt_ids(self, prompt):
        """Strings [batch] -> the last ids of each [rows, prompt], and whether others were cut."""
        text = valid_utf8(tf.ensure_shape(prompt, [None]))
        most = most_characters(self.max_length)
        characters = tf.strings.length(text, unit="UTF8_CHAR")
        before = tf.maximum(characters - most, 0)
        pieces = self.tokenizer.encode(
            tf.strings.substr(text, before, tf.fill(tf.shape(text), most), unit="UTF8_CHAR")
        )
        truncated = (before > 0) | (pieces.row_lengths() > self.max_length)
        ids = pieces[:, -self.max_length :].to_tensor(self.tokenizer.pad_id)
        return _at_least_one(ids), truncated

    def _continued(self, new_ids, prompted):
        """The text of new tokens, with the space after the prompt if there is one."""
        first = self.tokenizer.pieces(new_ids[:, 0])
        spaced = tf.strings.regex_full_match(first, _BEGINS_WITH_SPACE) & prompted
        return tf.where(spaced, " ", "") + self.tokenizer.decode(new_ids)

    def _log_prob(self, text):
        """`text` string [batch] -> `log_prob` float32, `tokens` int32, `truncated` bool [batch].

        The log-probability of the whole text, summed over `tokens` tokens, the last of which is the
        end id. A text that is too long is cut, and `truncated` is True.
        """
        text = tf.ensure_shape(text, [None])
        ids, truncated = self.tokenizer.encode_truncated(text, self.max_length)
        fed_ids = shifted(ids, self.tokenizer.bos_id)
        log_prob, tokens = decoding.score(self.model(fed_ids, training=False), ids)
        return {"log_prob": log_prob, "tokens": tokens, "truncated": truncated}


def _at_least_one(ids):
    """Ids [rows, length], with a row and a column of padding if there was none.

    The search after prompts begins at the shortest of them.
    """
    shape = tf.shape(ids)
    return tf.pad(ids, [[0, tf.cast(shape[i] == 0, tf.int32)] for i in range(2)])
