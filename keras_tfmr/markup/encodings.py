"""The bytes of a page as text: byte order marks and declarations decide, nothing is guessed."""

import codecs
import re

# A byte order mark stays in the text as U+FEFF. XML without one begins with `<`.
_BEGINNINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_HEAD = 1 << 16  # bytes in which a page declares its encoding
_COMMENT = re.compile(rb"<!--.*?-->", re.S)
_DECLARED = re.compile(
    rb"""\A\s*<\?xml\s[^>]*?\bencoding\s*=\s*["']([\w:.-]+)
    |<meta\s[^>]*?\bcharset\s*=\s*["']?\s*([\w:.-]+)""",
    re.X | re.I,
)
# What browsers read instead of an encoding: the same one with more characters.
_LARGER = {
    **dict.fromkeys(["ascii", "iso8859-1"], "cp1252"),
    **{"iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"},
    **{"gb2312": "gbk", "shift_jis": "cp932", "euc_kr": "cp949"},
}
_PROBE = b"<p a='\\x41+AGE-~{'>"  # means something else in what is no encoding of pages


def encoding_of(page: bytes, declares: bool = True) -> str:
    """The name, for Python, of the encoding in which the bytes of a page stay the same.

    Args:
        page: The bytes.
        declares: Whether the page can declare an encoding: HTML can, Markdown cannot.

    Raises:
        ValueError: If the page declares an unknown encoding, or is not in the one that it
            declares, or declares none and is not in UTF-8.

    >>> encoding_of(b"<meta charset=iso-8859-1>"), encoding_of(b"<p>")
    ('cp1252', 'utf-8')
    """
    for beginning, encoding in _BEGINNINGS:
        if page.startswith(beginning):
            return _checked(page, [encoding], f"begins as {encoding.upper()} does")
    match = declares and _DECLARED.search(_COMMENT.sub(b"", page[:_HEAD]))
    if not match:
        return _checked(page, ["utf-8"], "declares no encoding, so that it must be UTF-8")
    label = (match[1] or match[2]).decode()
    if label.lower().startswith(("utf-16", "utf-32")):  # not where its name is in ASCII
        label = "utf-8"
    try:
        name = codecs.lookup(label).name
        if _PROBE.decode(label) != _PROBE.decode("ascii"):
            raise LookupError(label)
    except (LookupError, UnicodeError):
        raise ValueError(f"the page declares the encoding {label!r}, which is unknown") from None
    return _checked(page, [_LARGER.get(name, name), name], f"declares {label!r}")


def _checked(page, encodings, claim):
    """The first encoding that keeps the page; else a ValueError that says what is wrong."""
    problem = ""
    for encoding in encodings:
        try:
            if page.decode(encoding).encode(encoding) == page:
                return encoding
            problem = "it would be written in other bytes"
        except UnicodeError as error:
            problem = str(error)
    raise ValueError(f"the page {claim}, but {problem}")
