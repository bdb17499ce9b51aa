"""Writes the pages of docs/reference from the docstrings: `python docs/make_reference.py`.

A page has the public names of some modules: the signature in full, in which options that are handed
on as `**options` have their names, types and defaults; the docstring; and the public methods.
"""

import ast
import dataclasses
import functools
import inspect
import pathlib
import re
import sys
import textwrap
import types
import typing

import keras

import keras_tfmr
from keras_tfmr import (
    client,
    decoding,
    errors,
    finished,
    layers,
    losses,
    metrics,
    models,
    plots,
    recurrent,
    schedules,
)  # fmt: skip
from keras_tfmr.shortlist import table
from keras_tfmr.text import tokenizer
from keras_tfmr.text_models import classifier, completer, shortlist, translator

FOLDER = pathlib.Path(__file__).resolve().parent / "reference"
# The pages by their files: a title, and the names of each module on the page.
PAGES = {
    "layers.md": ("Layers", {layers: layers.__all__}),
    "models.md": ("Models", {models: models.__all__, finished: ["optimize_for_decoding"]}),
    "recurrent.md": ("Recurrent and convolutional models", {recurrent: recurrent.__all__}),
    "training.md": ("Losses, metrics, schedules, plots", {
        losses: ["LabelSmoothedCrossEntropy", "smoothed_cross_entropy"],
        metrics: ["Perplexity", "TokenAccuracy"],
        schedules: ["NoamSchedule"],
        plots: ["plot_attention", "plot_positional_encoding", "plot_word"],
    }),
    "decoding.md": ("Decoding", {decoding: decoding.__all__}),
    "text.md": ("Tokenizers and text models", {
        tokenizer: ["SubwordTokenizer"], translator: ["Translator"], classifier: ["Classifier"],
        completer: ["Completer"], shortlist: ["learn_shortlist"], table: ["Shortlist"],
        errors: ["ExportError", "PresetError"],
    }),
    "client.md": ("Client", {client: client.__all__}),
}  # fmt: skip
# Methods that Keras calls, and those that layers and models have for each other.
HIDDEN = {
    "build", "call", "compute_mask", "compute_output_shape", "compute_output_spec", "from_config",
    "get_config", "result", "update_state",
    "add_positions", "add_vectors", "attention_options", "bias", "block_options",
    "buckets", "calibration_inputs", "check_length", "check_lengths", "draws", "generated",
    "given_layer", "hidden", "keys_and_values", "layer_options", "lora_layers", "make_dense",
    "make_feed_forward", "make_parts", "part_options", "pre_norm", "queries", "relations",
    "relations_of_step", "shared_options", "sides", "source_list", "step_and_state", "tagged",
    "untagged", "values", "vectors_of",
}  # fmt: skip
NOTE = "<!-- Made from the docstrings by docs/make_reference.py: change them, and run it. -->"
INDEX = """# Every public name

Each page has a class's arguments with their types and defaults, also those that it hands on to the
layers inside it; how it is called; and its methods. Names are imported from where the page says:
`from keras_tfmr import EncoderLayer`. Examples run after `import keras`, `import numpy as np` and
the import of the name.

In signatures, a `Tensor` is a tensor of Keras's backend, or an array or list that Keras takes for
one; `Nested` is a tensor, or tensors in tuples, lists and dictionaries; `Text` is `str | bytes`.
What an export loads in is on [a page of its own](export.md)."""
SECTIONS = {"Args:": "Arguments", "Fields:": "Arguments", "Call arguments:": "Call arguments",
            "Attributes:": "Attributes", "Raises:": "Raises"}  # fmt: skip


@functools.cache
def written_types(thing):
    """{name: type} of a function's arguments or a class's fields, as the source has it."""
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(node, ast.ClassDef):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        return {each.target.id: ast.unparse(each.annotation) for each in fields}
    arguments = [each for each in ast.walk(node.args) if isinstance(each, ast.arg)]
    found = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation}
    return found | ({"return": ast.unparse(node.returns)} if node.returns else {})


def handed_on(kind, options):
    """The parameters that stand in a `TypedDict` for the `**options` of a class, and their types.

    Their defaults are those of the constructors of its bases, or of `keras.layers.Dense`, by which
    layers project.
    """
    takers = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    found = {}
    for taker in (*takers, keras.layers.Dense.__init__, keras.layers.Layer.__init__):
        for name, parameter in inspect.signature(taker).parameters.items():
            if name in options.__annotations__:
                found.setdefault(name, parameter.replace(kind=parameter.KEYWORD_ONLY))
    declared = {}
    for each in vars(sys.modules[options.__module__]).values():
        if typing.is_typeddict(each):
            declared |= written_types(each)
    return [*found.values()], declared


def parameters_of(function, kind=None):
    """The parameters that callers know, and {name: type}; `kind` is the class of a constructor."""
    written, parameters = written_types(function), []
    for parameter in inspect.signature(function).parameters.values():
        if typing.get_origin(parameter.annotation) is typing.Unpack:
            more, declared = handed_on(kind, typing.get_args(parameter.annotation)[0])
            known = {each.name for each in parameters}
            parameters += [each for each in more if each.name not in known]
            written = declared | written
        elif parameter.name not in ("self", "cls"):
            parameters.append(parameter)
    return parameters, written


def of_constructor(kind):
    """`parameters_of` a class."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("keras_tfmr")]
    if dataclasses.is_dataclass(kind) or issubclass(kind, tuple):
        fields = inspect.signature(kind).parameters.values()
        return [*fields], {name: text for b in bases for name, text in written_types(b).items()}
    for base in bases:
        for name in {"__init__", "__new__"} & vars(base).keys():
            return parameters_of(vars(base)[name], kind)
    return [], {}


def signature(label, parameters, written):
    """A code block with a call, in one line or with a line for each parameter."""
    parts = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = f": {written[each.name]}" if each.name in written else ""
        equals = " = " if kind else "="
        default = "" if each.default is each.empty else f"{equals}{each.default!r}"
        parts.append(f"{stars}{each.name}{kind}{default}".replace("'", '"'))
    end = f") -> {written['return']}" if written.get("return", "None") != "None" else ")"
    text = f"{label}({', '.join(parts)}{end}"
    if len(text) > 88:
        text = "\n".join([f"{label}(", *(f"    {part}," for part in parts), end])
    return f"```python\n{text}\n```"


def linked(text, page):
    """Text with links to what it names: classes and methods, and papers."""

    def link(found):
        there, anchor = places().get(found[1], (None, None))
        return f"[{found[0]}]({'' if there == page else there}#{anchor})" if there else found[0]

    text = re.sub(r"`([A-Z]\w*(?:\.\w+)?|optimize_for_decoding)(?:\(\))?`", link, text)
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[\g<0>](https://arxiv.org/abs/\1)", text)


def listed(lines, options):
    """The lines of a section as a list; `options` are all arguments, for those in `**kwargs`."""
    pairs = [each.partition(": ")[::2] for each in re.sub(r"\n +", " ", lines).splitlines()]
    named = {name for names, _ in pairs for name in names.split(", ")}
    for number, (names, text) in enumerate(pairs):
        others = [name for name in options if name not in named]
        names = others if names == "**kwargs" and others else names.split(", ")
        pairs[number] = f"- {', '.join(f'`{name}`' for name in names)}: {text}"
    return "\n".join(pairs)


def described(docstring, page, options=(), call=None):
    """A docstring in Markdown; `call` is how the object is called."""
    blocks = []
    for block in inspect.cleandoc(docstring).split("\n\n"):
        head, _, lines = block.partition("\n")
        lines = textwrap.dedent(lines)
        if block.startswith(">>> "):
            blocks.append(f"```pycon\n{block}\n```")
        elif head in SECTIONS:
            blocks.append(f"**{SECTIONS[head]}**")
            blocks += [call] if head == "Call arguments:" and call else []
            blocks.append(linked(listed(lines, options if head == "Args:" else ()), page))
        elif head == "Returns:":
            blocks.append(linked(f"**Returns:** {lines}", page))
        elif head != "Example:":
            blocks.append(linked(re.sub("^Reference:", "**Reference:**", block), page))
    return "\n\n".join(blocks)


def methods(kind):
    """{name: method or property} of a class and its bases, for users."""
    found = {}
    for base in kind.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("keras_tfmr") else ():
            a_method = isinstance(member, (types.FunctionType, classmethod, property))
            if a_method and not name.startswith("_") and name not in HIDDEN:
                found.setdefault(name, member)
    return {name: each for name, each in found.items() if inspect.getdoc(getattr(kind, name))}


@functools.cache
def places():
    """{name: (page, anchor)} of all names and methods; an inherited method is shown once."""
    found, shown = {}, {}
    for page, (_, modules) in PAGES.items():
        for module, names in modules.items():
            for name in names:
                found[name] = page, name.lower()
                thing = getattr(module, name)
                for method, member in methods(thing).items() if inspect.isclass(thing) else ():
                    here = page, f"{name}{method}".lower()
                    found[f"{name}.{method}"] = shown.setdefault(member, here)
    return found


def of_method(name, method, member):
    """The heading of a method or property, and how it is called."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    parameters, written = parameters_of(function)
    label = f"{name}.{method}" if isinstance(member, classmethod) else method
    code = signature(label, parameters, written)
    if isinstance(member, property):
        code = f"```python\n{method}: {written['return']}\n```"
    return [f"### {name}.{method}", code]


def of_methods(kind, page):
    """The sections of a class's methods; inherited ones that were shown before are linked."""
    name, sections, inherited = kind.__name__, [], []
    for method, member in methods(kind).items():
        there, anchor = places()[f"{name}.{method}"]
        if anchor == f"{name}{method}".lower():
            sections += of_method(name, method, member)
            sections.append(described(inspect.getdoc(getattr(kind, method)), page))
        else:
            inherited.append(f"[`{method}`]({'' if there == page else there}#{anchor})")
    return sections + ([f"**Inherited:** {', '.join(inherited)}"] if inherited else [])


def of_class(kind, label, page):
    """The signature of a class, its docstring, and its methods."""
    parameters, written = of_constructor(kind)
    code, call = signature(label, parameters, {**written, "return": "None"}), None
    if issubclass(kind, Exception):
        code = f"```python\nclass {label}({kind.__base__.__name__})\n```"
    for base in kind.__mro__[::-1]:
        for method in ("update_state", "call", "__call__"):
            if base.__module__.startswith("keras_tfmr") and method in vars(base):
                taken, types_taken = parameters_of(vars(base)[method])
                call = signature(f"{kind.__name__}(...)", taken, {**types_taken, "return": "None"})
    names = [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]
    return [code, described(inspect.getdoc(kind), page, names, call), *of_methods(kind, page)]


def of_name(module, name, page):
    """The sections of a class or a function."""
    thing = getattr(module, name)
    file = inspect.getsourcefile(inspect.unwrap(thing))
    source = pathlib.Path(file).relative_to(FOLDER.parents[1])
    heading = [f"## {name}", f"[Source](../../{source})"]
    label = f"{'keras_tfmr' if name in keras_tfmr.__all__ else module.__name__}.{name}"
    if inspect.isclass(thing):
        return [*heading, *of_class(thing, label, page)]
    return [*heading, signature(label, *parameters_of(thing)), described(thing.__doc__, page)]


def pages():
    """{file: text} of docs/reference."""
    made, index = {}, [NOTE, INDEX]
    for page, (title, modules) in PAGES.items():
        blocks = [NOTE, f"# {title}", "[Every public name](README.md)"]
        blocks += [linked(inspect.cleandoc(module.__doc__), page) for module in modules]
        lines = []
        for module, names in modules.items():
            for name in names:
                blocks += of_name(module, name, page)
                summary = linked(getattr(module, name).__doc__.split("\n")[0], "README.md")
                lines.append(f"- [`{name}`]({page}#{name.lower()}): {summary}")
        made[page] = "\n\n".join(blocks) + "\n"
        index += [f"## [{title}]({page})", "\n".join(lines)]
    return {**made, "README.md": "\n\n".join(index) + "\n"}


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
