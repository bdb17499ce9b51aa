"""Encodes lines to ids, in processes that import neither Keras nor TensorFlow."""

import itertools
from typing import NamedTuple

import numpy as np

from training.corpus import arrays


class Encoded(NamedTuple):
    """The ids of `pairs` pairs, `(values, lengths)` for each side; `shared` pairs are left out."""

    pairs: int
    shared: int
    sides: list


class Encoder:
    """Encodes the kept pairs of a piece of a `Pile`.

    Args:
        tokenizers: Those of source and target, with `encode_lines`, as `SubwordTokenizer` has it.
        held_out: Sets of the sources and targets that must not be learned.
        tags: The tag of each part, or "".
    """

    def __init__(self, tokenizers, held_out, tags):
        self._tokenizers = tokenizers
        self._held_out, self._tags = held_out, tags

    def __call__(self, job):
        path, piece, kept = job
        with path.open("rb") as file:
            file.seek(piece.offset)
            lines = file.read(piece.size).decode().split("\n")
        pairs = [lines[i].split("\t") for i in np.flatnonzero(kept)]
        found = [p for p in pairs if not (p[0] in self._held_out[0] or p[1] in self._held_out[1])]
        tag = self._tags[piece.part]
        columns = [tagged(tag, source) for source, _ in found], [target for _, target in found]
        sides = []
        for tokenizer, column in zip(self._tokenizers, columns, strict=True):
            values, offsets = tokenizer.encode_lines(column)
            sides.append((values, np.diff(offsets)))
        return Encoded(len(found), len(pairs) - len(found), sides)


def tagged(tag, source):
    """A source with the tag of its corpus in front, if there is one."""
    return f"{tag} {source}" if tag else source


class SideWriter:
    """Writes the ids of one side: `NAME.values` and `NAME.offsets`, with their checksums."""

    def __init__(self, folder, name, dtype):
        self._files = [
            arrays.Writer(folder / f"{name}.{kind}", kind_dtype)
            for kind, kind_dtype in (("values", dtype), ("offsets", np.int64))
        ]
        self._files[1].append(np.zeros(1, np.int64))
        self._length = 0

    def append(self, values, lengths):
        """Adds lines: the ids of all of them, and the number of ids in each."""
        self._files[0].append(values)
        self._files[1].append(self._length + np.cumsum(lengths))
        self._length += len(values)

    def close(self):
        """Closes both files; returns their records by name."""
        for file in self._files:
            file.close()
        return {file.path.name: file.record() for file in self._files}


class Subwords:
    """`SubwordTokenizer.encode_lines` for processes without TensorFlow.

    Args:
        tokenizer: The `SubwordTokenizer`.
    """

    def __init__(self, tokenizer):
        self._model = tokenizer.model_bytes
        self.dtype = id_type(tokenizer)
        self._processor = None

    def encode_lines(self, lines):
        """`(values, offsets)` of a list of lines in composed form."""
        if self._processor is None:
            import sentencepiece

            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        # As in the tokenizer, because SentencePiece cannot tell U+2581 from a space.
        lines = [line.replace("\u2581", "\U0010fffe") for line in lines]
        rows = self._processor.encode(lines, num_threads=1)  # more do not help on short lines
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.fromiter(itertools.chain.from_iterable(rows), self.dtype)
        return values, np.append(0, np.cumsum(lengths))

    def __getstate__(self):
        return {**self.__dict__, "_processor": None}


def portable(tokenizer):
    """A picklable encoder like this tokenizer, if it has a light one; else the tokenizer."""
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    return Subwords(tokenizer) if type(tokenizer) is SubwordTokenizer else tokenizer


def id_type(tokenizer):
    """The smallest type of the ids of a tokenizer."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32)
