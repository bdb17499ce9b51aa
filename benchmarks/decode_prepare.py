"""Writes what the engines of benchmarks/decode.py load, and prints how many operations a step has.

    python benchmarks/decode_prepare.py FOLDER --sizes tutorial --beams 1 4 [--peers]

With another checkout of this project first on PYTHONPATH, it writes the exports of that checkout.
The random weights are the same in every export.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import decode_engines as engines
import keras
import numpy as np
import tensorflow as tf

from keras_tfmr import TransformerConfig, TranslationModel, models
from keras_tfmr.decoding import beam_search

# As an export has it; earlier checkouts do not know it.
untied = getattr(models, "untied", lambda model: model)


def build(size, dtype="float32"):
    """Our model with the same random weights in every process and precision.

    A size such as "base:2" has that many heads of keys and values.
    """
    keras.utils.set_random_seed(0)
    size, _, kv_heads = size.partition(":")
    config = TransformerConfig.preset(size, source_vocab=engines.VOCAB, target_vocab=engines.VOCAB)
    if kv_heads:
        config = config.replace(num_kv_heads=int(kv_heads))
    model = TranslationModel(config)
    if dtype == "float32":
        return model
    keras.config.set_dtype_policy(dtype)
    rounded = TranslationModel(config)
    keras.config.set_dtype_policy("float32")
    rounded.set_weights(model.get_weights())
    return rounded


def search(model, beams, tokens, graph):
    """The search, from ids to ids, as one function of TensorFlow."""
    compiled = graph == "XLA"

    def run(source_ids):
        step, state = model.start(source_ids, beams, max_length=tokens, compiled=compiled)
        result = beam_search(
            step, state, start_ids=tf.fill(tf.shape(source_ids)[:1], engines.START),
            end_id=engines.END, beams=beams, max_length=tokens, min_length=tokens,
            length_penalty=engines.PENALTY if beams > 1 else 0.0,
        )  # fmt: skip
        return result.ids[:, 0]

    spec = [tf.TensorSpec([None, None], tf.int32, name="source_ids")]
    return tf.function(run, input_signature=spec, jit_compile=compiled, autograph=False)


def export(run, path):
    """A SavedModel with the variables, not with Keras's objects, whose handles are others."""
    spec = tf.TensorSpec([None, None], tf.int32, name="source_ids")
    outer = tf.function(lambda source_ids: {"ids": run(source_ids)}).get_concrete_function(spec)
    module = tf.Module()
    module.weights = list(outer.variables)
    tf.saved_model.save(module, str(path), signatures=outer)


def operations(run):
    """The operations of one step: the nodes that do work in the last loop, or in the loop in it."""
    graph = run.get_concrete_function().graph
    while loops := [op for op in graph.get_operations() if op.type in ("While", "StatelessWhile")]:
        graph = graph._get_function(loops[-1].get_attr("body").name).graph
    found = [op.type for op in graph.get_operations()]
    return sum(kind not in ("Const", "Identity", "Placeholder") for kind in found)


def prepare(size, beams, tokens, dtypes, folder):
    """Our exports of a size; returns {graph: operations of a step} in float32."""
    counts = {}
    for graph in ("plain", "XLA"):
        for dtype in dtypes:
            run = search(untied(build(size, dtype)), beams, tokens, graph)
            export(run, engines.saved_model(folder, size, beams, tokens, graph, dtype))
            if dtype == "float32":
                counts[graph] = operations(run)
            if dtype == "float32" and graph == "plain":
                ids = run(tf.constant(engines.source(32))).numpy()
                np.save(Path(folder) / f"{size}-{beams}-{tokens}.npy", ids)
    return counts


def convert(model, path):
    """The same weights for CTranslate2, which gets the same source tokens, without an end."""
    from keras_tfmr.export.ctranslate2_format import ctranslate2_spec

    spec = ctranslate2_spec(model, engines.PIECES, engines.PIECES)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize()
    path.mkdir(parents=True, exist_ok=True)
    spec.save(str(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", nargs="+", required=True)
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--tokens", nargs="+", type=int, default=[engines.TOKENS])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--peers", action="store_true", help="also write CTranslate2's models")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for size in options.sizes:
        model = build(size)
        (options.folder / f"{size}.json").write_text(model.config.to_json())
        if options.peers:
            convert(model, engines.ctranslate2_model(options.folder, size))
        for beams in options.beams:
            for tokens in options.tokens:
                counts = prepare(size, beams, tokens, options.dtypes, options.folder)
                found = {"size": size, "beams": beams, "tokens": tokens, "operations": counts}
                print("\n@" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
