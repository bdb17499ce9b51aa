"""Sphinx: the guides and the reference as a site. Built by docs/build.sh."""

import pathlib
import shutil

import latex2mathml.converter
from docutils import nodes

import keras_tfmr

project = "keras_tfmr"
author = "The keras_tfmr authors"
project_copyright = author
release = keras_tfmr.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
# The sources are the whole repository, so that a page's links are the same here and on GitHub.
root_doc = "docs/index"
include_patterns = ["docs/**.md", "benchmarks/**.md", "serving/**.md", "C*.md"]
exclude_patterns = [".*", "*.egg-info", "runs", "data", "docs/_build"]
html_extra_path = ["index.html"]
html_theme = "furo"
html_title = "keras_tfmr"
html_math_renderer = "mathml"


def _inline(app, document):
    """Puts SVG pictures into the page itself, where their boxes can be clicked."""
    folder = pathlib.Path(app.srcdir, app.env.docname).parent
    for image in list(document.findall(nodes.image)):
        if image["uri"].endswith(".svg"):
            picture = (folder / image["uri"]).read_text()
            image.replace_self(nodes.raw("", picture, format="html"))


def _copy_pictures(app, error):
    """Copies the pictures of `<picture>` tags, in light and dark, which Sphinx does not read."""
    if error is None:
        pictures = pathlib.Path(app.srcdir, "docs", "pictures")
        shutil.copytree(pictures, pathlib.Path(app.outdir, "docs", "pictures"), dirs_exist_ok=True)


def _formula(display):
    """A visitor that writes MathML, which browsers show without a script from the network."""

    def visit(self, node):
        formula = latex2mathml.converter.convert(node.astext(), display=display)
        self.body.append(formula if display == "inline" else f"<div>{formula}</div>")
        raise nodes.SkipNode

    return visit, None


def setup(app):
    """Registers the functions above."""
    app.connect("doctree-read", _inline, priority=100)  # before the pictures are collected
    app.connect("build-finished", _copy_pictures)
    app.add_html_math_renderer("mathml", _formula("inline"), _formula("block"))
