"""Lists of texts as callers give them: needs neither TensorFlow nor Keras."""

from collections.abc import Iterable

Text = str | bytes


def checked_texts(texts: Iterable[Text], name: str = "texts") -> list[Text]:
    """The texts as a list; a TypeError for a single str, which would be split into letters."""
    if isinstance(texts, str | bytes):
        raise TypeError(f"`{name}` must be a list of str. Received: {texts!r:.60}")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str | bytes):
            raise TypeError(
                f"`{name}` must be a list of str. Received an element of {type(text).__name__}"
            )
    return texts
