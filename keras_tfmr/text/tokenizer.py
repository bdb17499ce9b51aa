"""Tokenizers: text to subword ids and back, by SentencePiece's ops inside the graph."""

import functools
import io
import itertools
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Self

import keras
import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfmr import compat
from keras_tfmr.config import Tensor
from keras_tfmr.text.pieces import rows_of
from keras_tfmr.text.spans import PRIVATE_BYTE, SLOTS

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

# SentencePiece writes a space as U+2581 and cannot tell it from a U+2581 in the text. The latter is
# replaced by a code point that Unicode guarantees never to assign.
SPACE_SIGN, _ESCAPED = "\u2581", "\U0010fffe"

# Maximum length of a subword in characters, and how many further ones leave it as it is.
_PIECE_CHARACTERS, _MARGIN = 16, 64


def most_characters(max_length):
    """Number of characters that hold a text's first, or last, `max_length` subwords unchanged."""
    return _PIECE_CHARACTERS * max_length + _MARGIN


# The op drops all spaces at the beginning of a text, with the one that SentencePiece put there.
# After a guard character it drops none; the guard and that one space are then removed here.
_GUARD, _GUARDED = "<0x78>", "^x ?"


def valid_utf8(texts):
    """Strings in which U+FFFD replaces bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


class Tokenizer(tf.Module):
    """The base of `SubwordTokenizer` and `MarianTokenizer`, which split texts and join subwords.

    Args:
        model_bytes: A SentencePiece model with the ids padding 0, unknown 1, start 2 and end 3.
        vocab_size: The number of ids; by default, those of the model.

    Attributes:
        slot_ids: The ids of `SLOTS`; empty if the vocabulary lacks some of them.
        slot_like_ids: The ids of other subwords and bytes that slots could be written with.

    Raises:
        ValueError: If the bytes are not such a model.
    """

    pad_id, unknown_id, bos_id, eos_id = range(4)
    # Of the model's target languages, those that a text can choose, and that of texts that do not.
    target_languages: tuple[str, ...] = ()
    target_language: str | None = None

    def __init__(self, model_bytes: bytes, vocab_size: int | None = None) -> None:
        super().__init__(name="subword_tokenizer")
        self.model_bytes = bytes(model_bytes)
        try:
            self._ops = compat.sentencepiece_ops(self.model_bytes, tf.int32, self.name)
            self.vocab_size = vocab_size or int(self._ops.vocab_size())
        except tf.errors.OpError as error:
            raise ValueError(f"not a SentencePiece model: {error.message}") from error
        specials = tuple(piece.decode() for piece in self._ops.id_to_string(range(4)).numpy())
        if specials != SPECIALS:
            raise ValueError(f"ids 0 to 3 of the model must be {SPECIALS}. Received: {specials}")
        self.slot_ids, self.slot_like_ids = self._find_slots()

    def _find_slots(self):
        ids = self._ops.string_to_id(tf.constant(SLOTS)).numpy().tolist()
        if self.unknown_id in ids or max(ids) >= self.vocab_size:
            return (), ()
        begin = bytes([PRIVATE_BYTE]), b"<0x%02X>" % PRIVATE_BYTE
        pieces = self._ops.id_to_string(tf.range(self.vocab_size)).numpy().tolist()
        alike = {i for i, piece in enumerate(pieces) if begin[0] in piece or piece == begin[1]}
        return tuple(ids), tuple(sorted(alike.difference(ids)))

    @functools.cached_property
    def _processor(self):
        """SentencePiece itself, for lines outside the graph."""
        return sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a SentencePiece model file."""
        pathlib.Path(path).write_bytes(self.model_bytes)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The tokenizer that `save` wrote to `path`; a ValueError if it holds none of this kind."""
        try:
            return cls(pathlib.Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def get_config(self) -> dict[str, Any]:
        """The arguments other than the SentencePiece model, which presets have in a file."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any], model_bytes: bytes) -> Self:
        """The tokenizer of a config and a SentencePiece model."""
        return cls(model_bytes, **config)

    def into(self, language: str) -> Self:
        """The same tokenizer of sources, with this target language for texts that choose none.

        Args:
            language: One of `target_languages`, such as "por".

        Raises:
            ValueError: If it is none of them.
        """
        known = ", ".join(self.target_languages) or "none, the model has one target language"
        raise ValueError(f"unknown target language {language!r}; the model's are: {known}")

    def untagged(self, texts: Sequence[str | bytes]) -> list[int]:
        """The numbers of the texts that have no target language, and need one."""
        return []

    def tagged(self, texts: Iterable[str | bytes]) -> list[str | bytes]:
        """The texts; those that need a target language get one of all, in turn."""
        texts, languages = list(texts), self.target_languages
        for number in self.untagged(texts):
            tag, text = f">>{languages[number % len(languages)]}<< ", texts[number]
            texts[number] = tag + text if isinstance(text, str) else tag.encode() + text
        return texts

    def encode(
        self, texts: tf.Tensor | Sequence[str | bytes], max_length: int | None = None
    ) -> tf.RaggedTensor:
        """Strings [batch] -> ids, ragged int32 [batch, (subwords)], without start and end id.

        Args:
            texts: string tensor [batch], or a list of str or bytes.
            max_length: Maximum number of subwords of each text; the rest of it costs no time.
        """
        ids, _ = self._subwords(texts, max_length)
        return ids if max_length is None else ids[:, :max_length]

    def counts(self, texts: tf.Tensor | Sequence[str | bytes], most: int) -> tf.Tensor:
        """Numbers of subwords of strings [batch], at most `most`: int64 [batch]."""
        return tf.minimum(self._subwords(texts, most)[0].row_lengths(), most)

    def encode_truncated(
        self, texts: tf.Tensor | Sequence[str | bytes], max_length: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Strings [batch] -> the ids that a model reads, and whether texts were cut.

        Args:
            texts: string tensor [batch], or a list of str or bytes.
            max_length: Maximum number of ids in a row, `eos_id` included; at least 1.

        Returns:
            `ids` int32 [batch, length], every row ended by `eos_id` and padded with `pad_id` to the
            longest; `truncated` bool [batch], True if `max_length` cut the text.
        """
        if max_length < 1:
            raise ValueError(
                f"max_length includes the end id and must be at least 1, not {max_length}"
            )
        ids, truncated = self._subwords(texts, max_length - 1)
        ids = ids.to_tensor(self.eos_id)  # [batch, subwords], padded with the end id at first
        truncated |= tf.reduce_any(ids[:, max_length - 1 :] != self.eos_id, axis=1)
        ids = tf.pad(ids[:, : max_length - 1], [[0, 0], [0, 1]], constant_values=self.eos_id)
        ended = tf.cumsum(tf.cast(ids == self.eos_id, tf.int32), axis=1, exclusive=True) > 0
        return tf.where(ended, self.pad_id, ids), truncated

    def decode(self, ids: Tensor) -> tf.Tensor:
        """Ids [batch, length] -> strings [batch], valid UTF-8 whatever the ids are.

        A row ends before its first `eos_id`. Padding, start ids and ids outside the vocabulary are
        skipped; bytes that are not UTF-8 become U+FFFD.
        """
        raise NotImplementedError

    def _of_text(self, ids):
        """The ids of text, ragged int32 [batch, (subwords)], among ids int32 [batch, length]."""
        # An id outside the vocabulary would make the op fail, and with it the whole batch.
        wanted = (ids > self.eos_id) & (ids < self.vocab_size)
        wanted &= tf.cumsum(tf.cast(ids == self.eos_id, tf.int32), axis=1) == 0
        return rows_of(ids, wanted)

    def _padded(self, ids):
        """Ids int32 [batch, length] of a tensor of any integers, or a ragged one."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.pad_id)
        return tf.ensure_shape(tf.cast(ids, tf.int32), [None, None])

    def pieces(self, ids: Tensor) -> tf.Tensor:
        """The subwords of ids as strings of the same shape; empty for padding and unknown ids.

        A space is written U+2581 and a byte `<0xC3>`, as in SentencePiece.
        """
        ids = tf.cast(ids, tf.int32)
        known = (ids != self.pad_id) & (ids >= 0) & (ids < self.vocab_size)
        flat = tf.reshape(tf.where(known, ids, self.unknown_id), [-1])
        return tf.where(known, tf.reshape(self._ops.id_to_string(flat), tf.shape(ids)), "")

    def names(self) -> list[str]:
        """The name of every id: "<pad>" for padding, else as in `pieces`."""
        names = self.pieces(np.arange(1, self.vocab_size)[None]).numpy()[0]
        return [SPECIALS[self.pad_id], *(name.decode() for name in names)]

    def encode_lines(self, lines: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes lines outside the graph, to the same ids as `encode`.

        Args:
            lines: iterable of str.

        Returns:
            `values` int32 [subwords of all lines], and `offsets` int64 [lines + 1]: line i is
            `values[offsets[i]:offsets[i + 1]]`.
        """
        rows = self._line_ids(lines)
        lengths = np.array([0, *map(len, rows)], np.int64)
        return np.fromiter(itertools.chain.from_iterable(rows), np.int32), np.cumsum(lengths)

    def _line_ids(self, lines):
        """The ids of each line, outside the graph."""
        raise NotImplementedError

    def _subwords(self, texts, max_length):
        """Strings [batch] -> ids, and whether the ends of texts were left out.

        Ids are ragged int32 [batch, (subwords)]; bool [batch]. What is left out is not among the
        first `max_length` subwords, if that is not None; there may be more ids than these.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_tfmr")
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

    Raises:
        ValueError: If the bytes are not such a model.

    Reference: SentencePiece (arXiv 1808.06226), its unigram model (arXiv 1804.10959).

    Example:

    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> ids, truncated = tokenizer.encode_truncated(["  o gato \N{CAT FACE}"], max_length=40)
    >>> tokenizer.decode(ids).numpy()[0].decode() == "  o gato \N{CAT FACE}"
    True
    """

    def __init__(self, model_bytes: bytes) -> None:
        super().__init__(model_bytes)
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
        symbols = list(symbols)
        lines = [_prepared(line) for line in _spaced(lines, max_lines)]
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
        ids = tf.pad(self._padded(ids), [[0, 0], [1, 0]], constant_values=self._guard)
        texts = self._ops.detokenize(self._of_text(ids))
        texts = tf.strings.regex_replace(texts, _GUARDED, "", replace_global=False)
        texts = tf.strings.regex_replace(texts, _ESCAPED, SPACE_SIGN)
        return valid_utf8(texts)

    def _subwords(self, texts, max_length):
        texts = tf.ensure_shape(tf.convert_to_tensor(texts, tf.string), [None])
        # Composed first, so that the cut below counts the characters that subwords are made of.
        texts = tf_text.normalize_utf8(valid_utf8(texts), "NFC")
        texts = tf.strings.regex_replace(texts, SPACE_SIGN, _ESCAPED)
        head = texts
        if max_length is not None:
            head = tf.strings.substr(texts, 0, most_characters(max_length), unit="UTF8_CHAR")
        return self._ops.tokenize(head), tf.strings.length(head) < tf.strings.length(texts)

    def _line_ids(self, lines):
        return self._processor.encode([_prepared(line) for line in lines], num_threads=1)


def _prepared(line):
    """The steps of `_subwords` before SentencePiece, outside the graph."""
    return unicodedata.normalize("NFC", line).replace(SPACE_SIGN, _ESCAPED)


def _spaced(lines, most):
    """At most `most` evenly spaced lines; it holds little more than these in memory."""
    chosen, stride = [], 1
    for number, line in enumerate(lines):
        if number % stride == 0:
            chosen.append(line)
        if len(chosen) > most:
            chosen, stride = chosen[::2], 2 * stride
    return chosen
