"""Translates the texts of HTML and Markdown; everything else stays as it is.

Pages are read here, and any callable translates their texts. Needs neither TensorFlow nor Keras.

>>> from keras_tfmr import markup
>>> page = '<p>Olá, <b title="planeta">mundo</b>!</p>'
>>> markup.run(markup.html([page]), lambda texts: [text.upper() for text in texts])
['<p>OLÁ, <b title="PLANETA">MUNDO</b>!</p>']
"""

import functools
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import AnyStr

from keras_tfmr.markup import html_page
from keras_tfmr.markup.encodings import encoding_of
from keras_tfmr.text.spans import DEFAULT, python_pattern
from keras_tfmr.text.strings import checked_texts

log = logging.getLogger("keras_tfmr.markup")

# Yields texts, is sent their translations, and returns pages.
Steps = Generator[list[str], Sequence[str], list[AnyStr]]


class PageError(ValueError):
    """A page that cannot be read.

    Attributes:
        index: Its place in the list of pages.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"pages[{index}]: {reason}")
        self.index, self.reason = index, reason


def html(pages: Iterable[AnyStr], protect: Iterable[str] = DEFAULT) -> Steps[AnyStr]:
    """Translates pages of HTML or XHTML, whole ones or parts.

    Texts are those between tags, and in the attributes `alt`, `aria-label`, `placeholder` and
    `title`. All else stays byte for byte: tags, entities, placeholders of template languages, what
    stands in `code`, `pre`, `script`, `style` and the like, or in an element with `translate="no"`
    or the class `notranslate`. What is protected in a text is one unit, which no tag is put into.

    Args:
        pages: List of str, or of bytes in the encoding that each page declares, else UTF-8.
        protect: What is protected in texts: names of `keras_tfmr.text.spans.PATTERNS`, and regular
            expressions.

    Yields:
        Lists of texts, to be sent their translations. For tags and what is protected, they have
        characters for private use. If not all of these come back once, the texts between them
        follow. A text whose translation has no word stays as it is.

    Returns:
        List of str or of bytes, as the pages are.

    Raises:
        PageError: If bytes are not in the encoding that the page declares, or this is unknown.
        ValueError: If a pattern is wrong.
    """
    pattern = python_pattern([*protect, html_page.ENTITY])
    return _steps(pages, html_page.translate_page, pattern, {}, declares=True)


def markdown(pages: Iterable[AnyStr], protect: Iterable[str] = DEFAULT) -> Steps[AnyStr]:
    """Translates pages of Markdown, as GitHub reads it.

    Code, addresses, placeholders and front matter stay as they are. The lines of a translated
    paragraph become one, but those that other programs read as lines, as footnotes are, stay. What
    is written is read again: a paragraph that cannot be translated without changing more than its
    words stays as it is, and is named in the log `keras_tfmr.markup`.

    Args:
        pages: List of str, or of bytes in UTF-8 or with a byte order mark.
        protect: As for `html`.

    Yields:
        As `html`.

    Returns:
        List of str or of bytes, as the pages are.

    Raises:
        ImportError: If markdown-it-py is not installed.
        PageError: As `html`.
        ValueError: As `html`.
    """
    try:
        from keras_tfmr.markup import markdown_page, markdown_pieces
    except ImportError as error:
        raise ImportError("Markdown needs markdown-it-py: pip install markdown-it-py") from error
    pattern = python_pattern([*protect, html_page.ENTITY, markdown_pieces.BRACKETS])
    left: dict[int, str] = {}
    translate_page = functools.partial(markdown_page.translate_page, left=left)
    return _steps(pages, translate_page, pattern, left, declares=False)


def run(steps: Steps[AnyStr], translate: Callable[[list[str]], Sequence[str]]) -> list[AnyStr]:
    """What `html(pages)` or `markdown(pages)` returns when `translate` answers what it yields."""
    try:
        texts = next(steps)
        while True:
            texts = steps.send(translate(texts))
    except StopIteration as end:
        return end.value


class _Known(dict[str, str]):
    """Translations of texts; new texts are noted, and stay as they are meanwhile."""

    def __init__(self) -> None:
        self.new: dict[str, str] = {}

    def __missing__(self, text: str) -> str:
        return self.new.setdefault(text, text)


def _steps(pages, translate_page, pattern, left, declares):
    """The steps of `html` and `markdown`; `translate_page` puts texts that stay into `left`."""
    pages, known = checked_texts(pages, "pages"), _Known()
    texts, encodings = [], []
    for i, page in enumerate(pages):
        try:
            encodings.append(encoding_of(page, declares) if isinstance(page, bytes) else None)
        except ValueError as error:
            raise PageError(i, str(error)) from error
        texts.append(page.decode(encodings[-1]) if encodings[-1] else page)

    def translated(i, text):
        try:
            return translate_page(text, known.__getitem__, pattern)
        except Exception as error:  # whatever a page has that its parser did not expect
            raise PageError(i, f"{type(error).__name__}: {error}") from error

    while True:
        answers, stay = [], []
        for i, text in enumerate(texts):
            left.clear()
            answers.append(translated(i, text))
            stay += [(i, line, " ".join(words.split())) for line, words in sorted(left.items())]
        if not known.new:
            break
        new, known.new = [*known.new], {}
        known.update(zip(new, (yield new), strict=True))
    for i, line, words in stay:
        log.warning("pages[%d], line %d stays as it is: %.80r", i, line, words)
    return [
        text.encode(encoding, "xmlcharrefreplace") if encoding else text
        for text, encoding in zip(answers, encodings, strict=True)
    ]
