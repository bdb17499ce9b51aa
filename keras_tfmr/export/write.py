"""Writes a text model as a SavedModel that TensorFlow Serving loads."""

import contextlib
import functools
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_tfmr import _files
from keras_tfmr.config import PACKAGES, versions
from keras_tfmr.errors import ExportError
from keras_tfmr.export import (
    batching,
    graph_edits,
    int8_agreement,
    known_answers,
    warmup,
)
from keras_tfmr.export.calibration import texts_for
from keras_tfmr.export.check import FreshProcess
from keras_tfmr.precision import precision_of
from keras_tfmr.text.strings import Text

METADATA_FILE = pathlib.Path("assets.extra", "keras_tfmr.json")
WARM_UP = 16  # texts that warm-up requests are made of
EXAMPLES = 5  # texts in the metadata, for a page that shows the model
# The greatest difference of a float from its value in process: a session fuses ops differently.
_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}


def write_saved_model(
    text_model: Any,
    directory: str | os.PathLike[str],
    precision: str | None = None,
    texts: Iterable[Text] | None = None,
    check: bool = True,
) -> pathlib.Path:
    """Writes the next version of a SavedModel: see `TextModel.export`."""
    texts = [text for text in texts_for(text_model, texts) if text.split()]
    original, facts = text_model, dict(text_model.record)
    if precision == "int8":
        if not texts:
            raise ValueError(
                "int8 needs texts in the model's source language, a few hundred like those of real "
                "requests, to find the ranges of products with: give `texts`, or --calibrate FILE"
            )
        text_model = trained = original.for_decoding("int8", texts)
        facts["int8"] = int8_agreement.measured(original, text_model, texts)
    else:
        # As it is if it can be: what it was asked has then been traced already.
        trained = text_model if precision is None else text_model.replace(precision=precision)
        text_model = trained.for_decoding()
    directory = pathlib.Path(directory)
    tolerance = _TOLERANCE.get(precision_of(text_model.model), _TOLERANCE["bfloat16"])
    with contextlib.ExitStack() as stack:
        with _files.writing(directory):
            unfinished = stack.enter_context(_files.unfinished(directory))
        process = stack.enter_context(FreshProcess(unfinished, tolerance)) if check else None
        functions = {
            name: each.get_concrete_function() for name, each in text_model.signatures.items()
        }
        asked = warmup.requests(text_model, texts[:WARM_UP] or known_answers.TEXTS)
        with _files.writing(directory):
            _save(text_model, functions, unfinished)
            warmup.write(unfinished, asked, _methods(text_model))
            batching.write(unfinished)
            _write_metadata(
                original, precision_of(text_model.model), unfinished, texts[:EXAMPLES], facts
            )
        known = functools.partial(known_answers.record, trained)
        if process and (problems := process.problems(known)):
            listed = "".join(f"\n- {problem}" for problem in problems)
            raise ExportError(f"The export would not serve and was not kept:{listed}")
        with _files.writing(directory):
            return _files.publish(unfinished, directory)


class _Servable(tf.Module):
    """The variables and tokenizers of a SavedModel.

    It must not hold Keras's own objects. A Keras variable would be saved as a second variable whose
    handle the graph does not read, and the server would find the first one uninitialised.
    """

    def __init__(self, text_model, functions):
        super().__init__()
        read = {id(variable) for function in functions for variable in function.variables}
        variables = {id(weight.value): weight.value for weight in text_model.model.weights}
        self.weights = [variable for key, variable in variables.items() if key in read]
        self.tokenizers = text_model.tokenizers
        # The name by which `keras.layers.TFSMLayer` looks for a function.
        self.serve = text_model.signatures[text_model.default]


def _save(text_model, functions, path):
    functions["serving_default"] = functions[text_model.default]  # for TensorFlow's Python loader
    module = _Servable(text_model, functions.values())
    # Nobody trains an export, and functions for gradients would refer to nodes that `prune` drops.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(path), signatures=functions, options=options)
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    [graph] = saved_model.meta_graphs
    graph_edits.prune(graph.graph_def)
    graph_edits.keep_loops(graph.graph_def)
    # With the same tensors, so that a server prepares them once and batches both signatures.
    graph.signature_def["serving_default"].CopyFrom(graph.signature_def[text_model.default])
    for name, method in _methods(text_model).items():  # TensorFlow writes Predict for all
        graph.signature_def[name].method_name = f"tensorflow/serving/{method}"
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    (path / "fingerprint.pb").unlink(missing_ok=True)  # that of the graph before the edits


def _methods(text_model):
    return {name: text_model.declared[name].method for name in text_model.signatures}


def _write_metadata(text_model, precision, path, examples, run):
    model = text_model.model
    metadata = {
        "kind": type(text_model).__name__,
        **text_model.to_metadata(),
        "precision": precision,
        "model": model.name,
        "parameters": int(model.count_params()),
        "versions": versions(*PACKAGES),
        "examples": [text for text in examples if isinstance(text, str)],
        "run": run,
    }
    file = path / METADATA_FILE
    file.parent.mkdir(exist_ok=True)
    text = json.dumps(metadata, indent=2, ensure_ascii=False, default=str)
    file.write_text(text + "\n", encoding="utf-8")
