"""Documents to sentences and white space, inside the graph; nothing of the text is lost.

Rules alone mark the borders, by regular expressions in RE2's syntax. On joined sentences they find
more borders than `tensorflow_text.StateBasedSentenceBreaker`, which also splits after
abbreviations and never at a line break.
"""

import collections
import importlib.resources
import os
import pathlib
import re
from collections.abc import Iterable

import tensorflow as tf

from keras_tfmr.text.pieces import chosen, join, split
from keras_tfmr.text.tokenizer import Tokenizer, valid_utf8

_FOLDER = importlib.resources.files("keras_tfmr.text") / "abbreviations"
# The languages with a list of abbreviations.
LANGUAGES = tuple(sorted(file.name.removesuffix(".txt") for file in _FOLDER.iterdir()))
_SHORT = {
    "deu": "de", "eng": "en", "spa": "es", "fra": "fr", "ita": "it", "nld": "nl", "por": "pt",
}  # fmt: skip

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

_MOST_HALVES = 2**32  # of the limit, in a piece


def list_of(language: str) -> str | None:
    """The name of a language's list of abbreviations, or None if there is none.

    >>> list_of("pt"), list_of("por"), list_of("")
    ('pt', 'pt', None)
    """
    language = _SHORT.get(language, language)
    return language if language in LANGUAGES else None


class SentenceSplitter:
    """Splits documents into sentences and what is between them, by ops that any server links.

    Every line end is a border, so paragraphs, blank lines and lists stay as they are. The pieces of
    a text, joined, are the text; invalid UTF-8 is read as U+FFFD.

    Args:
        abbreviations: After which words a full stop does not end a sentence: a language of
            `LANGUAGES`, or a list or a file of words, one a line, in any case, without their last
            full stop. `word #` holds only before a number. None, for any other language: the words
            that the lists of two languages or more have.

    Raises:
        ValueError: If there is no such list, or the file is not UTF-8.

    >>> splitter = SentenceSplitter("pt")
    >>> pieces, sentences = splitter.split(["O Sr. Reis saiu. E tu?\\n\\n- Eu não."])
    >>> [piece.decode() for piece in pieces.to_list()[0]]
    ['O Sr. Reis saiu.', ' ', 'E tu?', '\\n\\n', '-', ' ', 'Eu não.']
    >>> sentences.to_list()
    [[True, False, True, False, False, False, True]]
    """

    def __init__(self, abbreviations: str | os.PathLike[str] | Iterable[str] | None = None) -> None:
        self.abbreviations = abbreviations
        self.words = words = _words(abbreviations)
        numbered = {word.removesuffix("#").strip() for word in words if word.endswith("#")}
        always = {word for word in words if not word.endswith("#")}
        self._not_after = [
            (rf"(?i)((?:\A|[^\pL\pN])(?:{_any_of(group)})\.){_MARK}{after}", r"\1\2")
            for group, after in ((always, "()"), (numbered, rf"({_SPACE}*\pN)"))
            if group
        ]

    def split(
        self, texts: tf.Tensor, tokenizer: Tokenizer | None = None, max_length: int = 128
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Strings [batch] -> pieces, ragged string, and which are sentences, ragged bool.

        Args:
            texts: string tensor [batch].
            tokenizer: If given, sentences of more than `max_length` of its tokens, the end id
                included, are cut: at clause marks if possible, else between words.
            max_length: Maximum number of tokens of a sentence.

        Returns:
            Both ragged [batch, (pieces)], no piece empty.
        """
        pieces, rows, real = self.pieces(texts, tokenizer, max_length)
        count = tf.size(texts, tf.int64)
        pieces = tf.RaggedTensor.from_value_rowids(pieces, rows, count, validate=False)
        return pieces, pieces.with_flat_values(real)

    def pieces(
        self, texts: tf.Tensor, tokenizer: Tokenizer | None = None, max_length: int = 128
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `split`, but flat: pieces string, the text of each int64, bool; all [pieces]."""
        texts = tf.strings.regex_replace(valid_utf8(texts), _SIGN, _ESCAPED)
        texts = _replaced(texts, *_BORDERS, *self._not_after, *_NO_BORDERS, *_LAYOUT)
        pieces, rows = _split(texts)
        if tokenizer is not None:
            pieces, rows = _cut(pieces, rows, tokenizer, max_length)
        pieces = tf.strings.regex_replace(pieces, _ESCAPED, _SIGN)
        return pieces, rows, ~tf.strings.regex_full_match(pieces, _KEPT)


def _words(abbreviations):
    """The set of lines of a list of abbreviations."""
    if abbreviations is None:
        counts = collections.Counter(word for name in LANGUAGES for word in _words(name))
        return {word for word, count in counts.items() if count > 1}
    if not isinstance(abbreviations, str | os.PathLike):
        return {word.strip() for word in abbreviations} - {""}
    file = pathlib.Path(abbreviations)
    if abbreviations in LANGUAGES:
        file = _FOLDER / f"{abbreviations}.txt"
    elif not file.is_file():
        raise ValueError(
            f"There is no list of abbreviations {str(abbreviations)!r}: give a file, or one of "
            f"{', '.join(LANGUAGES)}"
        )
    try:
        lines = file.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error}") from error
    return {line.strip() for line in lines} - {""}


def _any_of(words):
    return "|".join(map(re.escape, sorted(words)))


def _replaced(texts, *rules):
    for pattern, replacement in rules:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return texts


def _split(texts):
    """Strings with marks [texts] to pieces without, and the text of each, both [pieces]."""
    pieces = split(texts, _MARK)
    return chosen(pieces.values != "", pieces.values, pieces.rows)


def _cut(pieces, rows, tokenizer, limit):
    """Pieces of at most `limit` tokens each, the end id included, and their rows."""

    def is_long(texts):
        # A token has a byte at least, so that few texts need the tokenizer.
        may_be = tf.strings.length(texts) >= limit - 1
        return _counts(texts, may_be, tokenizer, limit) >= limit

    def cut(level, pieces, rows, long):
        pieces, own = _cut_at(tf.gather(_CUTS, level), pieces, long, tokenizer, limit)
        pieces, again = _split(_replaced(pieces, _ENDS))
        return level + 1, pieces, tf.gather(rows, tf.gather(own, again)), is_long(pieces)

    def go_on(level, pieces, rows, long):
        return (level < len(_CUTS)) & tf.reduce_any(long)

    state = tf.constant(0), pieces, rows, is_long(pieces)
    shapes = tuple(tf.TensorShape(shape) for shape in ([], [None], [None], [None]))
    return tf.while_loop(go_on, cut, state, shape_invariants=shapes)[1:3]


def _cut_at(pattern, pieces, long, tokenizer, limit):
    """Cuts the long ones of some pieces where a pattern ends, with few cuts.

    Units that begin in the same half of the limit stay together. If none is longer than this half,
    no chunk is longer than the limit.

    Returns:
        The chunks, and the piece of each.
    """
    marked = tf.strings.regex_replace(pieces, pattern, rf"\1{_MARK}")
    units, piece = _split(tf.where(long, marked, pieces))
    counts = _counts(tf.strings.strip(units), tf.gather(long, piece), tokenizer, limit)
    before = tf.cumsum(counts, exclusive=True)
    before -= tf.gather(tf.math.segment_min(before, piece), piece)  # in the piece alone
    half = before // max(limit // 2, 1)
    halves, chunk = tf.unique(piece * _MOST_HALVES + half)  # both ascend
    return join(units, chunk, tf.size(halves)), halves // _MOST_HALVES


def _counts(texts, wanted, tokenizer, most):
    """int64 [texts]: the tokens of the wanted texts, up to `most`; 0 for the others."""
    [asked] = chosen(wanted, texts)
    counts = tokenizer.counts(asked, most)
    return tf.scatter_nd(tf.where(wanted), counts, tf.shape(texts, tf.int64))
