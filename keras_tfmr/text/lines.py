"""Lines of a corpus to subword ids, outside the graph: needs neither TensorFlow nor Keras."""

import itertools
import unicodedata

import numpy as np
import sentencepiece

# SentencePiece writes a space as U+2581 and cannot tell it from a U+2581 in the text. The latter is
# replaced by a code point that Unicode guarantees never to assign.
SPACE_SIGN, SPACE_SIGN_ESCAPED = "\u2581", "\U0010fffe"
CHUNK = 20_000  # lines encoded at a time


def id_type(vocab_size):
    """The smallest type that holds the ids: uint16 if it does, else int32."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


def prepared(line):
    """The normalisation of `SubwordTokenizer.encode`, before SentencePiece."""
    return unicodedata.normalize("NFC", line).replace(SPACE_SIGN, SPACE_SIGN_ESCAPED)


class LineEncoder:
    """Encodes lines as `SubwordTokenizer.encode` does.

    Args:
        model_bytes: The tokenizer's.
        vocab_size: The number of its ids.
    """

    def __init__(self, model_bytes, vocab_size):
        self.model_bytes, self.vocab_size = model_bytes, vocab_size
        self._processor = None

    @property
    def processor(self):
        """SentencePiece's own, loaded when it is needed."""
        if self._processor is None:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model_bytes)
        return self._processor

    def ids(self, lines):
        """The ids of a list of lines, a list of lists."""
        lines = [prepared(line) for line in lines]
        return self.processor.encode(lines, num_threads=1)  # more do not help on short lines

    def encode_lines(self, lines):
        """`(values, offsets)` of an iterable of str: see `SubwordTokenizer.encode_lines`."""
        dtype, lines = id_type(self.vocab_size), iter(lines)
        values, lengths = [np.zeros(0, dtype)], [np.zeros(1, np.int64)]
        while chunk := [*itertools.islice(lines, CHUNK)]:
            rows = self.ids(chunk)
            lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))
            values.append(np.fromiter(itertools.chain.from_iterable(rows), dtype))
        return np.concatenate(values), np.cumsum(np.concatenate(lengths))
