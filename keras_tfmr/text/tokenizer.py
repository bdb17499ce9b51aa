"""Subword tokenizers: learned with SentencePiece, run inside the graph.

They are lossless: decoding gives the text itself, in Unicode's composed form (NFC). Characters that
the vocabulary lacks are encoded as bytes, so that no text is unknown.
"""

import io
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Self

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfmr import compat
from keras_tfmr.config import Tensor
from keras_tfmr.text.lines import SPACE_SIGN, SPACE_SIGN_ESCAPED, LineEncoder, prepared

# The most characters in a subword, and how many further ones leave it as it is.
_PIECE_CHARACTERS, _MARGIN = 16, 64


def most_characters(max_length):
    """How many characters of a text hold its first, or last, `max_length` subwords, unchanged."""
    return _PIECE_CHARACTERS * max_length + _MARGIN


SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

# The op drops all spaces at the beginning of a text, with the one that SentencePiece put there.
# After a guard character it drops none; the guard and that one space are then removed here.
_GUARD, _GUARDED = "<0x78>", "^x ?"


class SubwordTokenizer(tf.Module):
    """Text to subword ids and back, by tensorflow-text ops that TensorFlow Serving links.

    As an attribute of an exported `tf.Module`, it is saved with the module. The ids are `pad_id` 0,
    an unknown id 1 that is never produced, `bos_id` 2, `eos_id` 3, then the 256 bytes, then the
    subwords.

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

    pad_id, unknown_id, bos_id, eos_id = range(4)

    def __init__(self, model_bytes: bytes) -> None:
        super().__init__(name="subword_tokenizer")
        self.model_bytes = bytes(model_bytes)
        try:
            self._ops = compat.sentencepiece_ops(self.model_bytes, tf.int32, self.name)
            self.vocab_size = int(self._ops.vocab_size())
        except tf.errors.OpError as error:
            raise ValueError(f"not a SentencePiece model: {error.message}") from error
        found = tuple(piece.decode() for piece in self._ops.id_to_string(range(4)).numpy())
        if found != SPECIALS:
            raise ValueError(f"ids 0 to 3 of the model must be {SPECIALS}. Received: {found}")
        self._read_model()
        self.lines = self._line_encoder()

    def _read_model(self):
        """Reads what a kind of tokenizer needs from its model."""
        self._guard = int(self._ops.string_to_id(_GUARD))
        if self._guard == self.unknown_id:
            raise ValueError("the SentencePiece model was learned without byte_fallback")

    def _line_encoder(self):
        return LineEncoder(self.model_bytes, self.vocab_size)

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int = 8000,
        *,
        coverage: float = 0.9998,
        max_lines: int = 200_000,
    ) -> Self:
        """Learns the subwords of a text; the same lines give the same subwords.

        Args:
            lines: iterable of str. For a joint vocabulary, give the lines of both languages.
            vocab_size: The number of ids. A small text may give fewer.
            coverage: The share of the text's characters that become subwords; the rest are
                encoded as bytes.
            max_lines: The most lines to use; from a longer text, they are evenly spaced.

        Raises:
            ValueError: If there is no text, or `vocab_size` is too small for its characters.
        """
        import sentencepiece

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
            raise ValueError(
                f"cannot learn {vocab_size} subwords from {len(lines)} lines: bytes and special "
                f"ids take 260 ids, and each character needs one ({error})"
            ) from error
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "SubwordTokenizer":
        """The tokenizer that `save` wrote to `path`, of whichever kind it is."""
        try:
            return SubwordTokenizer.from_bytes(pathlib.Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @staticmethod
    def from_bytes(model_bytes: bytes) -> "SubwordTokenizer":
        """The tokenizer of some `model_bytes`, of whichever kind it is."""
        from keras_tfmr.text.marian_tokenizer import MarianTokenizer, is_joined

        return (MarianTokenizer if is_joined(model_bytes) else SubwordTokenizer)(model_bytes)

    def __reduce__(self) -> tuple:  # for other processes
        return SubwordTokenizer.from_bytes, (self.model_bytes,)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a SentencePiece model file atomically."""
        path = pathlib.Path(path)
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_bytes(self.model_bytes)
        os.replace(unfinished, path)

    def extended(self, other: "SubwordTokenizer", share: float = 0.25) -> "SubwordTokenizer":
        """A tokenizer that has the subwords of another one too, after its own.

        A subword is as probable as in a mixture of both unigram models. Most of the texts that
        this tokenizer was learned from are encoded as before.

        Args:
            other: The tokenizer whose subwords are added.
            share: The weight of its probabilities in the mixture, in (0, 1).
        """
        from sentencepiece import sentencepiece_model_pb2 as proto

        model = proto.ModelProto.FromString(self.model_bytes)
        model.pieces.extend(mix(model.pieces, other, share))
        return type(self)(model.SerializeToString())

    def encode(
        self, texts: tf.Tensor | Sequence[str | bytes], max_length: int | None = None
    ) -> tf.RaggedTensor:
        """Strings [batch] -> ids, ragged int32 [batch, (subwords)], without start and end id.

        Args:
            texts: string tensor [batch], or a list of str or bytes.
            max_length: The most subwords to keep of each text; the rest of it costs no time.
        """
        return self._encode(texts, max_length)[0]

    def encode_truncated(
        self, texts: tf.Tensor | Sequence[str | bytes], max_length: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Strings [batch] -> the ids that a model reads, and whether texts were cut.

        Args:
            texts: string tensor [batch], or a list of str or bytes.
            max_length: The most ids in a row, `eos_id` included; at least 1.

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
        ids = self._real(ids)
        guard = tf.fill([ids.nrows(tf.int32), 1], self._guard)
        texts = self._ops.detokenize(tf.concat([guard, ids], axis=1))
        texts = tf.strings.regex_replace(texts, _GUARDED, "", replace_global=False)
        texts = tf.strings.regex_replace(texts, SPACE_SIGN_ESCAPED, SPACE_SIGN)
        return valid_utf8(texts)

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

    def nbest_segmentations(self, word: Sequence[int], most: int) -> list[tuple[list[int], float]]:
        """The most probable ways to split a word into subwords.

        Args:
            word: list of int, the ids of a word: a subword that begins with a space, and those up
                to the next such subword.
            most: The most ways to return.

        Returns:
            list of (list of int, float): ids and log-probability, the most probable first; only
            `word` if it contains bytes or is only a space.
        """
        processor = self.lines.processor
        text = "".join(processor.id_to_piece(i) for i in word)
        if any(map(processor.is_byte, word)) or not text[1:] or text[0] != SPACE_SIGN:
            return [(list(word), 0.0)]
        found = processor.nbest_encode(text[1:], nbest_size=most)
        return [(ids, sum(map(processor.get_score, ids))) for ids in found]

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
    kept, stride = [], 1
    for number, line in enumerate(lines):
        if number % stride == 0:
            kept.append(line)
        if len(kept) > most:
            kept, stride = kept[::2], 2 * stride
    return kept


def mix(pieces, other, share):
    """Mixes the probabilities of another tokenizer's subwords into those of SentencePiece pieces.

    Args:
        pieces: Pieces of a unigram model, which get new scores. Unused ones that the other
            tokenizer has become used.
        other: A `SubwordTokenizer`.
        share: The weight of its probabilities in the mixture, in (0, 1).

    Returns:
        A list of its other pieces, to be added.
    """
    from sentencepiece import sentencepiece_model_pb2 as proto

    made = proto.ModelProto.SentencePiece
    others = {
        piece.piece: share * math.exp(piece.score)
        for piece in proto.ModelProto.FromString(other.model_bytes).pieces
        if piece.type == piece.NORMAL
    }
    for piece in pieces:
        mixed = others.pop(piece.piece, 0.0)
        if piece.type == piece.NORMAL:
            mixed += (1 - share) * math.exp(piece.score)
        if mixed and piece.type in (piece.NORMAL, piece.UNUSED):
            piece.score, piece.type = math.log(mixed), piece.NORMAL
    return [made(piece=text, score=math.log(p)) for text, p in others.items()]


def valid_utf8(texts):
    """Strings in which U+FFFD replaces bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
