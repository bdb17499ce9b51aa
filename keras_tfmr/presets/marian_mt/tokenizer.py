"""Tokenizers of published MarianMT models, which have SentencePiece models and a vocabulary.

A vocabulary file determines the ids, not SentencePiece, and one vocabulary can hold the subwords of
both languages. `joined` makes one SentencePiece model with the ids of the vocabulary, so that the
ops of `SubwordTokenizer` can run it.
"""

import re
from typing import Any, Self

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as proto

from keras_tfmr import compat
from keras_tfmr.signatures.inputs import utf8
from keras_tfmr.text.pieces import rows_of
from keras_tfmr.text.tokenizer import SPACE_SIGN, SPECIALS, Tokenizer, valid_utf8

_KIND = "marian"  # marks a joined model, in `trainer_spec.model_prefix`
_TAG = r"^\s*>>[^<>\s]+<<"

_Piece = proto.ModelProto.SentencePiece
_PRODUCED = (_Piece.NORMAL, _Piece.USER_DEFINED, _Piece.BYTE)


@keras.saving.register_keras_serializable(package="keras_tfmr")
class MarianTokenizer(Tokenizer):
    """Text to subword ids and back, in the graph, with the subwords of a published Marian model.

    The ids are padding 0, unknown 1, start 2, end 3, then the vocabulary. Pieces that the
    SentencePiece model has and the vocabulary lacks, and characters that no piece has, are read as
    the unknown id; decoding skips it. Pieces that only the other language's SentencePiece model has
    are never read, but can be decoded.

    A model with several target languages has tags such as `>>por<<`. A tag at the beginning of a
    text is read as the tag; texts without one get the tokenizer's own tag, if it has one. Tags that
    are not in the vocabulary are read as text.

    Invalid UTF-8 is read as U+FFFD. Decoding does not restore what SentencePiece normalises, such
    as compatibility characters and double spaces.

    Args:
        model_bytes: The result of `joined`, or the content of a file that `save` wrote.
        language: The target language of texts without a tag; None for none.

    Raises:
        ValueError: If the bytes are not such a model, or have no tag of the language.

    Reference: Marian (arXiv 1804.00344), OPUS-MT (https://aclanthology.org/2020.eamt-1.61).

    >>> from keras_tfmr import SubwordTokenizer
    >>> spm = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> pieces = ["\u2581gato", "\u2581the", "\u2581", ">>eng<<"]
    >>> tokenizer = MarianTokenizer(joined(spm.model_bytes, pieces, reads_tags=True))
    >>> tokenizer.encode([">>eng<< o gato"]).to_list()[0][0]
    7
    >>> tokenizer.decode([[5, 4, 3]]).numpy()[0].decode()
    'the gato'
    """

    def __init__(self, model_bytes: bytes, language: str | None = None) -> None:
        spec = _parsed(model_bytes).trainer_spec
        if spec.model_prefix != _KIND:
            raise ValueError("this SentencePiece model was not joined with a Marian vocabulary")
        super().__init__(model_bytes, spec.vocab_size)
        # A character that this SentencePiece model does not know can still be in the vocabulary, so
        # ids are looked up by the spelling of pieces.
        self._speller = compat.sentencepiece_ops(self.model_bytes, tf.string, self.name)
        self._tag_ids = {tag: int(self._ops.string_to_id(tag)) for tag in spec.user_defined_symbols}
        self.target_languages = tuple(tag[2:-2] for tag in self._tag_ids)
        if language is not None and language not in self.target_languages:
            super().into(language)  # an error
        self.target_language, self._own_tag = language, self._tag_ids.get(f">>{language}<<")

    def get_config(self) -> dict[str, Any]:
        return {"language": self.target_language}

    def into(self, language: str) -> Self:
        return type(self)(self.model_bytes, language.strip("<>"))

    def untagged(self, texts):
        if self._own_tag is not None or not self._tag_ids:
            return []
        return [number for number, text in enumerate(texts) if not self._has_tag(utf8(text))]

    def _has_tag(self, text):
        match = re.match(_TAG, text.decode(errors="replace"))
        return bool(match) and match.group().strip() in self._tag_ids

    def decode(self, ids):
        """As in the base; unknown ids are skipped, too."""
        texts = self._ops.detokenize(self._of_text(self._padded(ids)))
        # The op leaves U+2581 for spaces in pieces of the other language's model.
        return tf.strings.strip(valid_utf8(tf.strings.regex_replace(texts, SPACE_SIGN, " ")))

    def _subwords(self, texts, max_length):
        texts = tf.ensure_shape(tf.convert_to_tensor(texts, tf.string), [None])
        texts, tags = self._tags_of(valid_utf8(texts))
        pieces = self._speller.tokenize(texts)
        ids = self._ops.string_to_id(pieces.values)
        ids = pieces.with_values(tf.where(ids < self.vocab_size, ids, self.unknown_id))
        ids = tf.concat([tags[:, None], ids.to_tensor(self.pad_id)], axis=1)
        return rows_of(ids, ids != self.pad_id), tf.zeros_like(tags, bool)

    def _tags_of(self, texts):
        """Strings [batch] -> strings without tags, and ids of tags [batch], padding if none."""
        default = self.pad_id if self._own_tag is None else self._own_tag
        ids = tf.fill([tf.size(texts)], default)
        if self._tag_ids:
            first = tf.strings.strip(tf.strings.regex_replace(texts, f"({_TAG})?(?s:.*)", r"\1"))
            same = first[:, None] == tf.constant([*self._tag_ids])  # [batch, tags]
            own = tf.reduce_any(same, axis=1)
            known = tf.constant([*self._tag_ids.values()], tf.int32)
            ids = tf.where(own, tf.gather(known, tf.argmax(same, axis=1)), ids)
            rest = tf.strings.regex_replace(texts, _TAG, "", replace_global=False)
            texts = tf.where(own, rest, texts)
        return texts, ids

    def _line_ids(self, lines):
        return self.encode([*lines]).to_list()


def joined(spm, pieces, *, reads_tags=False):
    """A SentencePiece model whose ids are those of a Marian vocabulary.

    It splits text like the published model: pieces that the vocabulary lacks come after it, and
    pieces that only the vocabulary has are marked as unused.

    Args:
        spm: Bytes of the published SentencePiece model.
        pieces: The vocabulary from id 4 on, a list of str.
        reads_tags: Whether texts can begin with a tag such as `>>por<<`; True for sources.

    Returns:
        Bytes for `MarianTokenizer`.

    Raises:
        ValueError: If the bytes are not a SentencePiece model.
    """
    model = _parsed(spm)
    own = {piece.piece: piece for piece in model.pieces if piece.type in _PRODUCED}
    lowest = min((piece.score for piece in own.values()), default=0.0) - 1.0
    tags = [piece for piece in pieces if re.fullmatch(_TAG, piece)] if reads_tags else []
    kinds = (_Piece.CONTROL, _Piece.UNKNOWN, _Piece.CONTROL, _Piece.CONTROL)
    entries = [_Piece(piece=p, score=0.0, type=k) for p, k in zip(SPECIALS, kinds, strict=True)]
    for piece in _distinct(pieces):
        unused = _Piece(piece=piece, score=lowest, type=_Piece.UNUSED)
        entries.append(own.pop(piece, unused))
    size = len(entries)
    entries += own.values()
    del model.pieces[:]
    model.pieces.extend(entries)
    spec = model.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = range(4)
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIALS
    spec.model_prefix, spec.vocab_size = _KIND, size
    spec.user_defined_symbols[:] = tags
    return model.SerializeToString()


def _parsed(spm):
    try:
        model = proto.ModelProto.FromString(spm)
    except DecodeError as error:
        raise ValueError(f"not a SentencePiece model: {error}") from error
    if not model.pieces:
        raise ValueError("not a SentencePiece model: it has no pieces")
    return model


def _distinct(pieces):
    """The pieces, renamed if they are empty, repeated or named like a special id."""
    taken = set(SPECIALS)
    for number, piece in enumerate(pieces, len(SPECIALS)):
        name = (
            piece if piece and piece not in taken else f"<{piece.strip('<>') or 'none'} {number}>"
        )
        taken.add(name)
        yield name
