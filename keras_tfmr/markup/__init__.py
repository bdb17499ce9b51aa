"""Translates the texts of HTML and Markdown; everything else stays as it is.

Pages are read here, and any callable translates their texts. Needs neither TensorFlow nor Keras.

>>> from keras_tfmr import markup
>>> page = '<p>Olá, <b title="planeta">mundo</b>!</p>'
>>> markup.run(markup.html([page]), lambda texts: [text.upper() for text in texts])
['<p>OLÁ, <b title="PLANETA">MUNDO</b>!</p>']
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import AnyStr

from keras_tfmr.markup import html_page
from keras_tfmr.signatures.inputs import checked_texts

# Yields texts, is sent their translations, and returns pages.
Steps = Generator[list[str], Sequence[str], list[AnyStr]]


def html(pages: Iterable[AnyStr]) -> Steps[AnyStr]:
    """Translates pages of HTML, whole ones or parts.

    Texts are those between tags, and in the attributes `alt`, `aria-label`, `placeholder` and
    `title`. Tags stay as they are, and so does what stands in `code`, `pre`, `script`, `style` and
    the like, or in an element with `translate="no"` or the class `notranslate`.

    Args:
        pages: List of str, or of bytes in the encoding that each page declares.

    Yields:
        Lists of texts, to be sent their translations. For the tags in a sentence, they have
        characters for private use. If not all of these come back once, the texts between the tags
        follow.

    Returns:
        List of str or of bytes, as the pages are.
    """
    return _steps(pages, html_page.translate_page, html_page.declared_encoding)


def markdown(pages: Iterable[AnyStr]) -> Steps[AnyStr]:
    """Translates pages of Markdown: CommonMark, with tables and `~~` as on GitHub.

    Code, addresses and front matter stay as they are. A paragraph becomes one line.

    Args:
        pages: List of str, or of bytes in UTF-8.

    Yields:
        As `html`.

    Returns:
        List of str or of bytes, as the pages are.

    Raises:
        ImportError: If markdown-it-py is not installed.
    """
    try:
        from keras_tfmr.markup import markdown_page
    except ImportError as error:
        raise ImportError("Markdown needs markdown-it-py: pip install markdown-it-py") from error
    return _steps(pages, markdown_page.translate_page, lambda page: None)


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


def _steps(pages, translate_page, declared_encoding):
    pages, texts, encodings = checked_texts(pages, "pages"), [], []
    for page in pages:
        is_bytes = isinstance(page, bytes)
        encodings.append(_encoding(page, declared_encoding(page)) if is_bytes else None)
        texts.append(page.decode(encodings[-1]) if is_bytes else page)
    known = _Known()
    while True:
        found = [translate_page(text, known.__getitem__) for text in texts]
        if not known.new:
            break
        new, known.new = [*known.new], {}
        known.update(zip(new, (yield new), strict=True))
    return [
        text.encode(encoding, "xmlcharrefreplace") if encoding else text
        for text, encoding in zip(found, encodings, strict=True)
    ]


def _encoding(page, declared):
    """The declared encoding, else UTF-8, else Latin-1: the first in which the page is valid."""
    for name in filter(None, [declared, "utf-8"]):
        with contextlib.suppress(LookupError, UnicodeDecodeError):
            page.decode(name)
            return name
    return "latin-1"
