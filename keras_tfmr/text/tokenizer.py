"""Subword tokenizers: learned with SentencePiece, run inside the graph.

They are lossless: decoding gives the text itself, in Unicode's composed form (NFC). Characters that
the vocabulary lacks are encoded as bytes, so that no text is unknown.
"""

import io
import re
from collections.abc import Iterable
from typing import Self

import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfmr.config import Tensor
from keras_tfmr.text.lines import SPACE_SIGN, SPACE_SIGN_ESCAPED, prepared
from keras_tfmr.text.subwords import SPECIALS, Tokenizer, valid_utf8

# Maximum length of a subword in characters, and how many further ones leave it as it is.
_PIECE_CHARACTERS, _MARGIN = 16, 64


def most_characters(max_length):
    """Number of characters that hold a text's first, or last, `max_length` subwords unchanged."""
    return _PIECE_CHARACTERS * max_length + _MARGIN


# The op drops all spaces at the beginning of a text, with the one that SentencePiece put there.
# After a guard character it drops none; the guard and that one space are then removed here.
_GUARD, _GUARDED = "<0x78>", "^x ?"


class SubwordTokenizer(Tokenizer):
    """Text to subword ids and back, by tensorflow-text ops that TensorFlow Serving links.

    As an attribute of an exported `tf.Module`, it is saved with the module. The ids are `pad_id` 0,
    an unknown id 1 that is never produced, `bos_id` 2, `eos_id` 3, then the symbols of `learn` if
    any, the 256 bytes, and the subwords.

    Invalid UTF-8 is read as U+FFFD. Decoding gives back all spaces, leading, double and trailing
    ones too, and tabs, line ends, NUL and emoji. The only exception is U+10FFFE, which is not a
    character; it is decoded as U+2581.

    Args:
        model_bytes: A SentencePiece model with the ids above and byte fallback, as `learn` makes.

    Attributes:
        lines: A `LineEncoder`, which other processes can use without TensorFlow.

    Raises:
        ValueError: If the bytes are not such a model.

    Reference: SentencePiece (arXiv 1808.06226), its unigram model (arXiv 1804.10959).

    Example:

    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> ids, truncated = tokenizer.encode_truncated(["  o gato \N{CAT FACE}"], max_length=40)
    >>> tokenizer.decode(ids).numpy()[0].decode() == "  o gato \N{CAT FACE}"
    True
    """

    def _read_model(self):
        self._guard = int(self._ops.string_to_id(_GUARD))
        if self._guard == self.unknown_id:
            raise ValueError("the SentencePiece model was learned without byte_fallback")

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int = 8000,
        *,
        coverage: float = 0.9998,
        max_lines: int = 200_000,
        symbols: Iterable[str] = (),
    ) -> Self:
        """Learns the subwords of a text; the same lines give the same subwords.

        Args:
            lines: iterable of str. For a joint vocabulary, give the lines of both languages.
            vocab_size: The number of ids. A small text may give fewer.
            coverage: Fraction of the text's characters that become subwords; the rest are
                encoded as bytes.
            max_lines: Maximum number of lines; of a longer text, evenly spaced ones are used.
            symbols: Texts that are one subword each, never split and never a part of another, such
                as the `SLOTS` of protected spans.

        Raises:
            ValueError: If there is no text, or `vocab_size` is too small for its characters.
        """
        import sentencepiece

        symbols = list(symbols)
        lines = [prepared(line) for line in _spaced(lines, max_lines)]
        if not any(line.strip() for line in lines):
            raise ValueError(f"no text to learn a vocabulary from in {len(lines)} lines")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="unigram",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=coverage,
                max_sentencepiece_length=_PIECE_CHARACTERS,
                user_defined_symbols=symbols,
                byte_fallback=True,
                split_digits=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                pad_id=cls.pad_id,
                unk_id=cls.unknown_id,
                bos_id=cls.bos_id,
                eos_id=cls.eos_id,
                pad_piece=SPECIALS[cls.pad_id],
                num_threads=2,  # fixed, because the sums and so the subwords depend on it
                minloglevel=2,
            )
        except RuntimeError as error:
            least = re.search(r"(\d+) vs (\d+)", str(error))  # "smaller than required_chars"
            if not least:
                raise
            raise ValueError(
                f"vocab_size must be at least {least[2]} for these {len(lines)} lines: bytes, "
                f"symbols and special ids take {260 + len(symbols)}, and each character needs one. "
                f"Received: {vocab_size}"
            ) from error
        return cls(model.getvalue())

    def decode(self, ids: Tensor) -> tf.Tensor:
        ids = self._real(ids)
        guard = tf.fill([ids.nrows(tf.int32), 1], self._guard)
        texts = self._ops.detokenize(tf.concat([guard, ids], axis=1))
        texts = tf.strings.regex_replace(texts, _GUARDED, "", replace_global=False)
        texts = tf.strings.regex_replace(texts, SPACE_SIGN_ESCAPED, SPACE_SIGN)
        return valid_utf8(texts)

    def _encode(self, texts, max_length):
        texts = tf.ensure_shape(tf.convert_to_tensor(texts, tf.string), [None])
        # Composed first, so that the cut below counts the characters that subwords are made of.
        texts = tf_text.normalize_utf8(valid_utf8(texts), "NFC")
        texts = tf.strings.regex_replace(texts, SPACE_SIGN, SPACE_SIGN_ESCAPED)
        if max_length is None:
            return self._ops.tokenize(texts), tf.zeros(tf.shape(texts), bool)
        head = tf.strings.substr(texts, 0, most_characters(max_length), unit="UTF8_CHAR")
        ids = self._ops.tokenize(head)
        truncated = tf.strings.length(head) < tf.strings.length(texts)
        truncated |= ids.row_lengths() > tf.cast(max_length, tf.int64)
        return ids[:, :max_length], truncated


def _spaced(lines, most):
    """At most `most` evenly spaced lines; it holds little more than these in memory."""
    chosen, stride = [], 1
    for number, line in enumerate(lines):
        if number % stride == 0:
            chosen.append(line)
        if len(chosen) > most:
            chosen, stride = chosen[::2], 2 * stride
    return chosen
