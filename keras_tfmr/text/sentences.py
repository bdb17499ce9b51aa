"""Documents to sentences and white space, inside the graph; nothing of the text is lost.

Rules alone mark the borders, by regular expressions in RE2's syntax. On joined sentences they find
more borders than `tensorflow_text.StateBasedSentenceBreaker`, which also splits after
abbreviations and never at a line break.
"""

import os
import pathlib
from collections.abc import Callable

import tensorflow as tf

from keras_tfmr.text.tokenizer import SubwordTokenizer, valid_utf8

_FOLDER = pathlib.Path(__file__).with_name("abbreviations")

# The mark of a border. It begins with a code point that Unicode guarantees never to assign; in the
# text itself, that code point is followed by another one until the text has been split.
_SIGN = "\ufdd0"
_ESCAPED, _MARK = _SIGN + "\ufdd1", _SIGN + "\ufdd2"

_SPACE = r"[\s\v\pZ\x{85}]"
_LINE_END = r"[\n\v\f\r\x{85}\x{2028}\x{2029}]"
_END = r"[.!?…‽؟۔।॥]"
_CLOSING = r"""["'”’»)\]}›]"""
_OPENING = r"""["'“‘«(\[{‹¿¡]"""
_BULLET = r"(?:[-–*•‣·]|[0-9]{1,3}\))"

# Rules in order: a pattern and its replacement.
_BORDERS = (
    (rf"({_END}+{_CLOSING}*)({_SPACE})", rf"\1{_MARK}\2"),
    (r"([。！？｡]+[”’」』）】]*)", rf"\1{_MARK}"),
    # No space after a full stop, but not within a name such as Node.js or U.S.A.
    (rf"(\p{{Ll}}{{2}}{_END}+)(\p{{Lu}}[\p{{Ll}}\s])", rf"\1{_MARK}\2"),
)
_NO_BORDERS = (
    # Initials. English has a word I.
    (rf"""((?:\A|[\s\pZ("'“«.-])[A-HJ-ZÀ-ÖØ-ÞΑ-ΩА-Я]\.){_MARK}""", r"\1"),
    # The sentence goes on after a quotation or an ellipsis.
    (rf"{_MARK}({_SPACE}+(?:{_OPENING}|\p{{Pd}}{_SPACE}*)*[\p{{Ll}},;:])", r"\1"),
)
_LAYOUT = (
    (rf"((?:\A|{_LINE_END})[ \t\pZ]*)({_BULLET})({_SPACE})", rf"\1{_MARK}\2{_MARK}\3"),
    # White space on its own: line ends with what is around them, between sentences, at both ends.
    (
        rf"(?:{_MARK})?({_SPACE}*{_LINE_END}{_SPACE}*)|(?:\A|{_MARK})({_SPACE}+)|({_SPACE}+)\z",
        rf"{_MARK}\1\2\3{_MARK}",
    ),
)
_ENDS = (rf"\A({_SPACE}+)|({_SPACE}+)\z", rf"{_MARK}\1\2{_MARK}")
# What is not translated: control characters and white space, bullets and numbers of lists.
_KEPT = rf"[\pZ\pC]*|{_BULLET}|[0-9]{{1,3}}\."

# Where too long a sentence is cut, the best places first.
_CUTS = (
    rf"((?:[,;:–—)\]]{_SPACE}|[，、；：])+{_SPACE}*)",
    rf"({_SPACE}+)",
    rf"({_SIGN}?(?s:.))",  # an escaped sign is not cut
)


class SentenceSplitter(tf.Module):
    """Splits documents into sentences and what is between them, by ops that any server links.

    Every line end is a border, so paragraphs, blank lines and lists stay as they are. The pieces of
    a text, joined, are the text; invalid UTF-8 is read as U+FFFD.

    Args:
        abbreviations: After which words a full stop does not end a sentence: the name of a list of
            this package, "pt" or "en", or a file with one word a line, in any case, without its
            last full stop. `word #` holds only before a number. The file is an asset of an export.

    Raises:
        ValueError: If there is no such list or file.

    >>> splitter = SentenceSplitter("pt")
    >>> pieces, sentences = splitter.split(["O Sr. Reis saiu. E tu?\\n\\n- Eu não."])
    >>> [piece.decode() for piece in pieces.to_list()[0]]
    ['O Sr. Reis saiu.', ' ', 'E tu?', '\\n\\n', '-', ' ', 'Eu não.']
    >>> sentences.to_list()
    [[True, False, True, False, False, False, True]]
    """

    def __init__(self, abbreviations: str | os.PathLike[str] = "pt") -> None:
        super().__init__(name="sentence_splitter")
        self.abbreviations = abbreviations
        file = pathlib.Path(abbreviations)
        if not file.is_file():
            file = _FOLDER / f"{abbreviations}.txt"
        if not file.is_file():
            known = ", ".join(sorted(path.stem for path in _FOLDER.glob("*.txt")))
            raise ValueError(
                f"There is no list of abbreviations {str(abbreviations)!r}: give a file, or one "
                f"of {known}"
            )
        self._words = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(file),
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
            ),
            "",
        )

    def split(
        self, texts: tf.Tensor, tokenizer: SubwordTokenizer | None = None, max_length: int = 128
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Strings [batch] -> pieces, ragged string, and which are sentences, ragged bool.

        Args:
            texts: string tensor [batch].
            tokenizer: If given, sentences of more than `max_length` of its tokens, the end id
                included, are cut: at clause marks if possible, else between words.
            max_length: The most tokens of a sentence.

        Returns:
            Both ragged [batch, (pieces)], no piece empty.
        """
        texts = tf.strings.regex_replace(valid_utf8(texts), _SIGN, _ESCAPED)
        pieces = _split(_replaced(self._bordered(texts), *_LAYOUT))
        if tokenizer is not None:
            pieces = _cut(pieces, lambda texts: tokenizer.encode(texts, max_length), max_length)
        pieces = pieces.with_flat_values(
            tf.strings.regex_replace(pieces.flat_values, _ESCAPED, _SIGN)
        )
        kept = tf.strings.regex_full_match(pieces.flat_values, _KEPT)
        return pieces, pieces.with_flat_values(~kept)

    def _bordered(self, texts):
        """Texts with a mark at the end of each sentence."""
        lines = tf.strings.strip(self._words.lookup(tf.range(self._words.size())))
        lines = tf.strings.regex_replace(lines, r"([.*+?()\[\]{}|\\^$])", r"\\\1")
        numbered = tf.strings.regex_full_match(lines, ".*#")
        never = tf.boolean_mask(lines, ~numbered)
        numbered = tf.strings.regex_replace(tf.boolean_mask(lines, numbered), r"\s*#", "")
        texts = _replaced(texts, *_BORDERS)
        for words, after in ((never, "()"), (numbered, rf"({_SPACE}*\pN)")):
            words = tf.strings.reduce_join(words, separator="|")
            before = r"(?i)((?:\A|[^\pL\pN])(?:"
            pattern = tf.strings.join([before, words, rf")\.){_MARK}{after}"])
            texts = tf.strings.regex_replace(texts, pattern, r"\1\2")
        return _replaced(texts, *_NO_BORDERS)


def _replaced(texts, *rules):
    for pattern, replacement in rules:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return texts


def _split(texts):
    """Strings with marks [rows] -> pieces, ragged [rows, (pieces)], without empty ones."""
    pieces = tf.strings.split(texts, _MARK)
    return tf.ragged.boolean_mask(pieces, pieces.with_flat_values(pieces.flat_values != ""))


def _cut(pieces, encode: Callable, limit: int):
    """Cuts pieces that have `limit` tokens or more; white space is on its own afterwards."""

    def is_long(texts):
        # A token has a byte at least, so that most texts need no tokenizer.
        may_be = tf.strings.length(texts) >= limit - 1
        return _counts(texts, may_be, encode) >= limit

    def cut():
        found = pieces
        for pattern in _CUTS:
            found = _cut_at(found, pattern, is_long(found.flat_values), encode, limit)
        return _merged(found, _split(_replaced(found.flat_values, _ENDS)))

    any_long = tf.reduce_any(is_long(pieces.flat_values))
    return tf.cond(any_long, cut, lambda: pieces)


def _cut_at(pieces, pattern, is_long, encode, limit):
    """Cuts the long ones of some pieces where a pattern ends, as seldom as can be told at once.

    Units that begin in the same half of the limit stay together. If none is longer than this half,
    no chunk is longer than the limit.
    """
    texts = pieces.flat_values
    marked = tf.strings.regex_replace(texts, pattern, rf"\1{_MARK}")
    units = _split(tf.where(is_long, marked, texts))
    of_long = tf.gather(is_long, units.value_rowids())
    counts = _counts(tf.strings.strip(units.flat_values), of_long, encode)
    begins = tf.cumsum(counts, exclusive=True)
    begins -= tf.gather(begins, tf.gather(units.row_starts(), units.value_rowids()))
    chunk = begins // max(limit // 2, 1)
    # The number of each unit's chunk among all.
    row = units.value_rowids()
    differs = (chunk[1:] != chunk[:-1]) | (row[1:] != row[:-1])
    first = tf.concat([tf.ones_like(row[:1], bool), differs], 0)
    number = tf.cumsum(tf.cast(first, tf.int64)) - 1
    total = tf.reduce_sum(tf.cast(first, tf.int64))
    chunks = tf.strings.unsorted_segment_join(units.flat_values, number, total)
    rows = tf.boolean_mask(row, first)
    return _merged(pieces, tf.RaggedTensor.from_value_rowids(chunks, rows, units.nrows()))


def _counts(texts, wanted, encode):
    """int64 [rows]: the tokens of the wanted texts, 0 for the others."""
    counts = encode(tf.boolean_mask(texts, wanted)).row_lengths()
    return tf.scatter_nd(tf.where(wanted), counts, tf.shape(texts, tf.int64))


def _merged(pieces, parts):
    """Pieces [batch, (pieces)], each of which is given as parts, as [batch, (parts)]."""
    return pieces.with_flat_values(parts).merge_dims(1, 2)
