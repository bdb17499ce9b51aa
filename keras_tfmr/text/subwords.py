"""Shared by all tokenizers: text to ids and back, by SentencePiece's ops inside the graph."""

import os
import pathlib
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_tfmr import compat
from keras_tfmr.config import Tensor
from keras_tfmr.text.lines import SPACE_SIGN, LineEncoder
from keras_tfmr.text.spans import PRIVATE_BYTE, SLOTS

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Tokenizer(tf.Module):
    """The base of `SubwordTokenizer` and `MarianTokenizer`, which split texts and join subwords.

    Args:
        model_bytes: A SentencePiece model with the ids padding 0, unknown 1, start 2 and end 3.

    Attributes:
        lines: A `LineEncoder`, which other processes can use without TensorFlow.
        slot_ids: The ids of `SLOTS`; empty if the vocabulary lacks some of them.
        slot_like_ids: The ids of other subwords and bytes that slots could be written with.

    Raises:
        ValueError: If the bytes are not such a model.
    """

    pad_id, unknown_id, bos_id, eos_id = range(4)
    # Of the model's target languages, those that a text can choose, and that of texts that do not.
    target_languages: tuple[str, ...] = ()
    target_language: str | None = None

    def __init__(self, model_bytes: bytes) -> None:
        super().__init__(name="subword_tokenizer")
        self.model_bytes = bytes(model_bytes)
        try:
            self._ops = compat.sentencepiece_ops(self.model_bytes, tf.int32, self.name)
            self.vocab_size = int(self._ops.vocab_size())
        except tf.errors.OpError as error:
            raise ValueError(f"not a SentencePiece model: {error.message}") from error
        specials = tuple(piece.decode() for piece in self._ops.id_to_string(range(4)).numpy())
        if specials != SPECIALS:
            raise ValueError(f"ids 0 to 3 of the model must be {SPECIALS}. Received: {specials}")
        self._read_model()
        self.lines = self._line_encoder()
        self.slot_ids, self.slot_like_ids = self._find_slots()

    def _read_model(self):
        """Reads what a kind of tokenizer needs from its model."""

    def _find_slots(self):
        ids = self._ops.string_to_id(tf.constant(SLOTS)).numpy().tolist()
        if self.unknown_id in ids or max(ids) >= self.vocab_size:
            return (), ()
        begin = bytes([PRIVATE_BYTE]), b"<0x%02X>" % PRIVATE_BYTE
        pieces = self._ops.id_to_string(tf.range(self.vocab_size)).numpy().tolist()
        alike = {i for i, piece in enumerate(pieces) if begin[0] in piece or piece == begin[1]}
        return tuple(ids), tuple(sorted(alike.difference(ids)))

    def _line_encoder(self):
        return LineEncoder(self.model_bytes, self.vocab_size)

    def __reduce__(self) -> tuple[Any, ...]:  # for other processes
        return type(self), (self.model_bytes,)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a SentencePiece model file atomically."""
        path = pathlib.Path(path)
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_bytes(self.model_bytes)
        os.replace(unfinished, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The tokenizer that `save` wrote to `path`; a ValueError if it holds none of this kind."""
        try:
            return cls(pathlib.Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

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
        """The texts, of which those that need a target language get each in turn."""
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
        return self._encode(texts, max_length)[0]

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
        if not tf.is_tensor(max_length) and max_length < 1:
            raise ValueError(
                f"max_length includes the end id and must be at least 1, not {max_length}"
            )
        pieces, truncated = self._encode(texts, max_length - 1)
        end = tf.fill([pieces.nrows(tf.int32), 1], self.eos_id)
        return tf.concat([pieces, end], axis=1).to_tensor(self.pad_id), truncated

    def decode(self, ids: Tensor) -> tf.Tensor:
        """Ids [batch, length] -> strings [batch], valid UTF-8 whatever the ids are.

        A row ends before its first `eos_id`. Padding, start ids and ids outside the vocabulary are
        skipped; bytes that are not UTF-8 become U+FFFD.
        """
        raise NotImplementedError

    def _real(self, ids):
        """The ids of text, ragged int32 [batch, (subwords)], among ids [batch, length]."""
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.pad_id)
        ids = tf.ensure_shape(tf.cast(ids, tf.int32), [None, None])
        # An id outside the vocabulary would make the op fail, and with it the whole batch.
        wanted = (ids > self.eos_id) & (ids < self.vocab_size)
        wanted &= tf.cumsum(tf.cast(ids == self.eos_id, tf.int32), axis=1) == 0
        return tf.ragged.boolean_mask(ids, wanted)

    def pieces(self, ids: Tensor) -> tf.Tensor:
        """The subwords of ids as strings of the same shape; empty for padding and unknown ids.

        A space is written U+2581 and a byte `<0xC3>`, as in SentencePiece.
        """
        ids = tf.cast(ids, tf.int32)
        known = (ids != self.pad_id) & (ids >= 0) & (ids < self.vocab_size)
        flat = tf.reshape(tf.where(known, ids, self.unknown_id), [-1])
        return tf.where(known, tf.reshape(self._ops.id_to_string(flat), tf.shape(ids)), "")

    def encode_lines(self, lines: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes many lines outside the graph, to the same ids as `encode`, in little memory.

        Args:
            lines: iterable of str.

        Returns:
            `values` [subwords of all lines], uint16 if the vocabulary allows it, else int32, and
            `offsets` int64 [lines + 1]: line i is `values[offsets[i]:offsets[i + 1]]`.
        """
        return self.lines.encode_lines(lines)

    def word_beginnings(self) -> np.ndarray:
        """bool [vocab]: which subwords begin with a space; they have no other spaces."""
        processor = self.lines.processor
        pieces = (processor.id_to_piece(i) for i in range(self.vocab_size))
        return np.array([piece.startswith(SPACE_SIGN) for piece in pieces])

    def _encode(self, texts, max_length):
        """Strings [batch] -> ids, ragged int32 [batch, (subwords)], and whether texts were cut."""
        raise NotImplementedError


def valid_utf8(texts):
    """Strings in which U+FFFD replaces bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
