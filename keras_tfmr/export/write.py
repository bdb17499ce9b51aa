"""Writes exports: `TextModel.export`."""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf import saved_model_pb2

from keras_tfmr import _files, compat
from keras_tfmr.config import PACKAGES, versions
from keras_tfmr.errors import ExportError
from keras_tfmr.export import batching, calibration, known_answers, warmup
from keras_tfmr.export.check import problems_in_new_process, unlike
from keras_tfmr.export.ctranslate2 import write_ctranslate2
from keras_tfmr.export.marian_mt import write_marian_mt
from keras_tfmr.export.shortlist import compared
from keras_tfmr.precision import precision_of
from keras_tfmr.shortlist import Shortlist
from keras_tfmr.text.strings import Text

METADATA_FILE = pathlib.Path("assets.extra", "keras_tfmr.json")
WARM_UP = 16  # texts that warm-up requests are made of
EXAMPLES = 5  # texts in the metadata, for a page that shows the model
# The greatest difference of a float from its value in process: a session fuses ops differently.
# Texts must be the same: the check sends the same batches. In other batches, int8 may choose the
# other one of two translations that are nearly as probable; float32 does not.
_TOLERANCE, _ROUNDED_TOLERANCE = 1e-4, 5e-2  # in float32, in others


def export(
    text_model: Any,
    directory: str | os.PathLike[str],
    format: str,
    precision: str | None,
    texts: Iterable[Text] | None,
    warm_up: Iterable[str] | None,
    shortlist: Shortlist | None,
    check: bool,
) -> pathlib.Path:
    """Writes a text model in a format: see `TextModel.export`."""
    if format not in text_model.formats:
        known = ", ".join(map(repr, text_model.formats))
        raise ValueError(
            f"Expected a format of {known} for a {type(text_model).__name__}. Received: {format!r}"
        )
    if shortlist is not None and "translate" not in text_model.declared:
        raise ValueError(
            f"A shortlist is for a translator. Received: a {type(text_model).__name__}"
        )
    if format == "saved_model":
        _files.check_folder(directory)
        folder = pathlib.Path(directory)
        return _saved_model(text_model, folder, precision, texts, warm_up, shortlist, check)
    given = {
        "precision": precision is not None,
        "texts": texts is not None,
        "warm_up": warm_up is not None,
        "shortlist": shortlist is not None and format != "ctranslate2",
        "check": not check,
    }
    if useless := [name for name, is_given in given.items() if is_given]:
        raise ValueError(f"{useless[0]} has no effect on the format {format!r}")
    with _files.whole(directory) as folder:
        if format == "ctranslate2":
            write_ctranslate2(text_model, folder, shortlist)
        else:
            write_marian_mt(text_model, folder)
        for side, tokenizer in text_model.tokenizers.items():
            (folder / f"{side}.spm").write_bytes(tokenizer.model_bytes)
    return pathlib.Path(directory)


def _saved_model(text_model, directory, precision, texts, warm_up, shortlist, check):
    texts = [text for text in calibration.texts_for(text_model, texts) if text.split()]
    trained, served, record = _prepared(text_model, precision, texts)
    precision = precision_of(served.model)
    problems = _strays(trained, served) if check and precision == "float32" else []
    if shortlist is not None:
        whole, served = served, served.with_shortlist(shortlist)
        record["shortlist"] = compared(whole, served, shortlist, texts)
    metadata = metadata_of(text_model, precision, texts[:EXAMPLES], record)
    functions = {
        name: function.get_concrete_function() for name, function in served.signatures.items()
    }
    warm_ups = known_answers.warm_ups(served, warm_up, texts[:WARM_UP] or known_answers.TEXTS)
    cases = known_answers.cases(served) if check else []
    with _files.writing(directory), _files.unfinished(directory) as folder:
        _save(served, functions, folder)
        warmup.write(folder, warm_ups)
        batching.write(folder)
        text = json.dumps(metadata, indent=2, ensure_ascii=False, default=str)
        (folder / METADATA_FILE).write_text(text + "\n", encoding="utf-8")
        if check:
            tolerance = _TOLERANCE if precision == "float32" else _ROUNDED_TOLERANCE
            problems += problems_in_new_process(folder, cases, tolerance)
        if problems:
            listed = "".join(f"\n- {problem}" for problem in problems)
            raise ExportError(f"The export would not serve and was not kept:{listed}")
        return _files.publish(folder, directory)


def _prepared(text_model, precision, texts):
    """The text model in the precision of an export, its copy for decoding, and its record."""
    record = dict(text_model.record)
    if precision == "int8":
        if not texts:
            raise ValueError(
                "int8 needs texts in the model's source language, a few hundred like those of real "
                "requests, to find the ranges of products with: give `texts`, or --calibrate FILE"
            )
        served = text_model.for_decoding("int8", texts)
        record["int8"] = calibration.measured(text_model, served, texts)
        return served, served, record
    # As it is if possible: its functions may have been traced already.
    trained = text_model if precision is None else text_model.replace(precision=precision)
    return trained, trained.for_decoding(), record


def metadata_of(
    text_model: Any, precision: str, examples: list[Text], record: dict[str, Any]
) -> dict[str, Any]:
    """The content of `METADATA_FILE`: the text model, the versions that wrote it, and examples."""
    model = text_model.model
    return {
        "text_model": {
            "class_name": keras.saving.get_registered_name(type(text_model)),
            "config": text_model.get_config(),
        },
        "precision": precision,
        "model": model.name,
        "parameters": int(model.count_params()),
        "versions": versions(*PACKAGES),
        "examples": [text for text in examples if isinstance(text, str)],
        "run": record,
    }


def _strays(trained, served):
    """The differences between the default signature's answer and that of the model's own layers."""
    name = served.default
    (*_, found), (*_, known) = (known_answers.case(each, name) for each in (served, trained))
    return unlike(name, found, known, _TOLERANCE, "by the model's own layers")


class _Servable(tf.Module):
    """The variables and tokenizers of a SavedModel.

    It must not hold Keras's own objects. A Keras variable would be saved as a second variable whose
    handle the graph does not read, and the server would find the first one uninitialised.
    """

    def __init__(self, text_model, functions):
        super().__init__()
        read = (variable for function in functions.values() for variable in function.variables)
        self.weights = [*{id(variable): variable for variable in read}.values()]
        self.tokenizers = text_model.tokenizers
        # The name by which `keras.layers.TFSMLayer` looks for a function.
        self.serve = functions[text_model.default]


def _save(text_model, functions, path):
    functions["serving_default"] = functions[text_model.default]  # for TensorFlow's Python loader
    module = _Servable(text_model, functions)
    # Nobody trains an export.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(path), signatures=functions, options=options)
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    [graph] = saved_model.meta_graphs
    _edit(graph.graph_def)
    # With the same tensors, so that a server prepares them once and batches both signatures.
    graph.signature_def["serving_default"].CopyFrom(graph.signature_def[text_model.default])
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    (path / "fingerprint.pb").unlink(missing_ok=True)  # that of the graph before the edits


def _edit(graph_def):
    """Makes the functions of a graph faster to load, to prepare and to run; they compute the same.

    Equal constants become one, and shapes that loaders infer are dropped: a session optimises the
    functions of each signature before its first answer, in a time that grows with every node.
    Loops run as they are: by default, TensorFlow lowers them to `Switch`, `Merge` and
    `NextIteration`, which cost a fifth to a third of a decoding step with few sentences. The names
    of gradients go, because loaders would warn that these were not saved.
    """
    for function in graph_def.library.function:
        for node in function.node_def:
            if compat.LOWERED in node.attr:
                node.attr[compat.LOWERED].b = False
            node.attr.pop("_gradient_op_type", None)
            node.attr.pop("_output_shapes", None)
        _share_constants(function)


def _share_constants(function):
    """Keeps the first one of equal constants in a `FunctionDef`."""
    kept, instead, nodes = {}, {}, []
    for node in function.node_def:
        if node.op == "Const":
            content = NodeDef()
            content.CopyFrom(node)
            content.name = ""
            first = kept.setdefault(content.SerializeToString(deterministic=True), node.name)
            if first != node.name:
                instead[f"{node.name}:output:0"] = f"{first}:output:0"
                instead[f"^{node.name}"] = f"^{first}"
                continue
        nodes.append(node)
    for node in nodes:
        node.input[:] = [instead.get(name, name) for name in node.input]
    for name, tensor in [*function.ret.items()]:
        function.ret[name] = instead.get(tensor, tensor)
    copies = FunctionDef(node_def=nodes)
    function.ClearField("node_def")
    function.MergeFrom(copies)
