"""Sphinx: the guides, and the reference from the docstrings. Built by docs/build.sh."""

import inspect
import pathlib
import shutil

import latex2mathml.converter
from docutils import nodes

import keras_tfmr

project = "keras_tfmr"
author = "The keras_tfmr authors"
project_copyright = author
release = keras_tfmr.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
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
napoleon_use_ivar = True  # the fields of named tuples are members already
napoleon_custom_sections = [
    ("Call arguments", "params_style"), ("Fields", "params_style"), "Reference",
]  # fmt: skip
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
# The docstrings' Args sections say what the signatures mean.
autodoc_typehints = "none"


def _skip(app, what, name, obj, skip, options):
    """Leaves out the methods that only Keras calls."""
    keras_hooks = {
        "build", "call", "compute_mask", "compute_output_shape", "compute_output_spec",
        "from_config", "get_config",
    }  # fmt: skip
    return skip or name in keras_hooks or name.endswith("_class")


def _signature(app, what, name, obj, options, signature, annotation):
    """The arguments of a class, where Sphinx would show those of Keras's `__new__`."""
    if what == "class" and signature == "(*args, **kwargs)":
        of_init = inspect.signature(obj.__init__)
        parameters = [
            parameter.replace(annotation=parameter.empty)
            for parameter in of_init.parameters.values()
            if parameter.name != "self"
        ]
        return str(inspect.Signature(parameters)), annotation
    return signature, annotation


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
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
    app.connect("doctree-read", _inline, priority=100)  # before the pictures are collected
    app.connect("build-finished", _copy_pictures)
    app.add_html_math_renderer("mathml", _formula("inline"), _formula("block"))
