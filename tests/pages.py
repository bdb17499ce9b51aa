"""Pages of HTML, XHTML and Markdown, and what other programs read in them."""

import collections
import re
from pathlib import Path

import cmarkgfm
import html5lib
from lxml import etree

DATA = Path(__file__).parent / "data"


def pages_of(file):
    """{name: page} of a file with pages below lines `=== name`."""
    parts = re.split(r"^=== (.*)\n", (DATA / file).read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


PAGES, XHTML, MARKDOWN = map(pages_of, ("pages.html", "pages.xhtml", "pages.md"))
TRANSLATED = {"alt", "aria-label", "placeholder", "title"}
KEPT = {"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "textarea", "var"}


def tree(page, kept=True):
    """How often a page has each element and comment: the way to it from the root.

    With `kept`, also what must not be translated.
    """
    found = collections.Counter()

    def walk(node, way, stays):
        if callable(node.tag):
            found[way, "comment", node.text] += 1
            return
        attributes = {k: (k in TRANSLATED and not stays) or v for k, v in node.attrib.items()}
        tag = node.tag.rpartition("}")[2]
        stays |= kept and (
            tag in KEPT
            or attributes.get("translate") == "no"
            or attributes.get("class") == "notranslate"
        )
        way = (*way, (tag, *sorted(attributes.items())))
        found[way, stays and node.text] += 1
        for child in node:
            walk(child, way, stays)

    walk(parsed(page), (), False)
    return found


def parsed(page):
    """As lxml reads XHTML, and html5lib all else."""
    if page.startswith("<?xml"):
        return etree.fromstring(page.encode())
    parse = html5lib.parse if page.startswith("<!DOCTYPE") else html5lib.parseFragment
    return parse(page, namespaceHTMLElements=False)


def texts(page):
    """The texts of a page, none of which has a tag in it, and of its attributes."""
    nodes = [*parsed(page).iter()]
    ends = [text for node in nodes for text in (node.text, node.tail, *node.attrib.values())]
    return [text for text in ends if text]


def words(page):
    return sorted(re.findall(r"\w+", " ".join(texts(page))))


def rendered(page):
    """A page as GitHub's own program renders it; front matter left out."""
    page = re.sub(r"\A---.*?^---$", "", page, flags=re.S | re.M)
    return cmarkgfm.github_flavored_markdown_to_html(page, cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE)
