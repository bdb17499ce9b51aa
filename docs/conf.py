"""Sphinx: the guides, and the reference from the docstrings. Built by docs/build.sh."""

import pathlib

from docutils import nodes

import keras_tfmr

project = "keras_tfmr"
author = "the keras_tfmr authors"
release = keras_tfmr.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "keras_tfmr"
napoleon_use_ivar = True  # the fields of named tuples are members already
napoleon_custom_sections = [("Call arguments", "params_style"), "Reference"]
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
# The docstrings' Args sections say what the signatures mean.
autodoc_typehints = "none"
suppress_warnings = ["myst.xref_missing"]


def _skip(app, what, name, obj, skip, options):
    """Leaves out the methods that only Keras calls."""
    keras_hooks = {
        "build", "call", "compute_mask", "compute_output_shape", "compute_output_spec",
        "from_config", "get_config", "config_class", "layer_class", "attention_class",
        "self_attention_class", "gated_feed_forward_class",
    }  # fmt: skip
    return skip or name in keras_hooks


def _inline(app, document):
    """Puts SVG pictures into the page itself, where their boxes can be clicked."""
    folder = pathlib.Path(app.srcdir, app.env.docname).parent
    for image in list(document.findall(nodes.image)):
        if image["uri"].endswith(".svg"):
            picture = (folder / image["uri"]).read_text()
            image.replace_self(nodes.raw("", picture, format="html"))


def setup(app):
    """Registers the filter of members, and the way SVG pictures are shown."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _inline, priority=100)  # before the pictures are collected
