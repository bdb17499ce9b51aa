"""Products in int8, against integers in NumPy, in a loop, in a new process and in whole models."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import random_ids
from text_models import LINES, Plain, tiny, tiny_translator

from keras_tfmr import Transformer, TransformerConfig
from keras_tfmr.errors import ExportError
from keras_tfmr.export import check, known_answers
from keras_tfmr.export.calibration import measured
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.export.write import METADATA_FILE
from keras_tfmr.finished import int8, optimize_for_decoding

# oneDNN then takes a processor without VNNI, whatever this one is.
LOADED = """
import sys
import numpy as np, tensorflow as tf
x, path = np.load(sys.argv[1]), sys.argv[2]
np.save(sys.argv[3], tf.saved_model.load(path).signatures["f"](x=tf.constant(x))["y"])
"""


def product(rng, input_range, width=48, units=20, then=None):
    """A product in int8, and its kernel and bias."""
    kernel, bias = (rng.normal(size=n).astype("float32") for n in ((width, units), units))
    kind = int8.rounded({"place": input_range})
    return kind.product("place", *map(tf.constant, (kernel, bias)), then), kernel, bias


def rounded_product(x, kernel, bias, low, high):
    """x @ kernel + bias of x in 255 steps from low to high and columns of 127 steps."""
    step = (high - low) / 255
    zero = np.round(-low / step)
    integers = np.clip(np.floor(x / step + zero + 0.5), 0, 255) - zero
    scale = np.abs(kernel).max(axis=0) / 63
    return (integers @ np.round(kernel / scale)) * step * scale + bias


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)


@pytest.mark.parametrize("rows", [15, 0])
@pytest.mark.parametrize("then", [None, keras.activations.relu, keras.activations.silu])
def test_calibrated_product_is_that_of_rounded_integers(rows, then):
    rng = np.random.default_rng(0)
    rounded, *exact = product(rng, (-1.5, 2.0), then=then)
    x = rng.normal(size=(rows, 48)).astype("float32")
    expected = rounded_product(x.astype("float64"), *exact, -1.5, 2.0)
    expected = expected if then is None else np.array(then(expected))
    y = rounded(x)
    assert y.shape == (rows, 20)
    assert np.allclose(y, expected, atol=0.2)  # an input between two integers may round either way
    assert np.sum(~np.isclose(y, expected, atol=1e-4)) <= 0.1 * expected.size


@pytest.mark.ci
def test_loop_in_a_saved_model_is_right_on_a_processor_without_vnni(tmp_path):
    rng = np.random.default_rng(2)
    multiply, *_ = product(rng, (-3.0, 3.0), 64, 64)
    x = np.full((5, 64), 3.0, "float32")  # the greatest sums, which would not fit into 16 bits
    x[1:] *= rng.choice([-1, 1], (4, 64))

    def loop(x):
        def step(i, x):
            return i + 1, 3.0 * tf.tanh(multiply(x))

        return {"y": tf.while_loop(lambda i, x: i < 3, step, (0, x))[1]}

    module = tf.Module()
    module.weights = [variable.value for variable in multiply.variables]
    module.f = tf.function(loop, [tf.TensorSpec([None, 64], name="x")], autograph=False)
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"f": module.f})
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", LOADED, tmp_path / "x.npy", tmp_path / "model"]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "CUDA_VISIBLE_DEVICES": "-1"}
    subprocess.run([*map(str, command), str(tmp_path / "y.npy")], check=True, env=environment)
    assert np.allclose(np.load(tmp_path / "y.npy"), module.f(x)["y"], atol=1e-2)


@pytest.mark.ci
def test_model_in_int8_is_close_and_a_third_of_the_size():
    config = TransformerConfig(
        source_vocab=600, target_vocab=600, encoder_layers=1, decoder_layers=1, d_model=256,
        num_heads=4, dff=512,
    )  # fmt: skip
    model = Transformer(config)
    pairs = [random_ids(16, length, vocab=600, seed=length) for length in (9, 7)]
    exact = np.array(model(pairs))

    def size(model):
        return sum(w.value.dtype.size * np.prod(w.shape) for w in model.weights)

    fast = optimize_for_decoding(model, "int8", [pairs])
    assert np.abs(np.array(fast(pairs)) - exact).std() < 0.05 * exact.std()
    # Not a quarter: the logits have a table of their own, and small products stay.
    assert size(fast) < 0.35 * size(model)


@pytest.mark.ci
def test_export_answers_like_the_copy_in_this_process(tmp_path):
    translator = tiny_translator(tiny(Transformer, seed=4), kind=Plain)
    path = translator.export(tmp_path, precision="int8", texts=LINES, check=False)
    metadata = json.loads((path / METADATA_FILE).read_text())
    assert metadata["precision"] == "int8"
    facts = metadata["run"]["int8"]
    assert facts["texts"] == len(LINES) and 0.9 < facts["int8_share"] < 1
    assert b"_QuantizedMatMul" in (path / "saved_model.pb").read_bytes()
    with SavedSession(path) as session:
        found = session.run("translate", {"text": np.array([x.encode() for x in LINES], object)})
        here = translator.for_decoding("int8", LINES)
        for case in known_answers.cases(here, [line.encode() for line in LINES]):
            assert check.differences(session, case, tolerance=1e-3) == []
    assert [text.decode() for text in found["translation"]] == here.translate(LINES)


@pytest.mark.ci
def test_straying_answers_are_refused():
    """A hidden unit that is large, and that nothing reads, takes all steps of its layer's input."""
    translator = tiny_translator(tiny(Transformer, seed=4), kind=Plain)
    feed_forward = translator.model.get_layer("decoder").layers[0].feed_forward
    unit = np.arange(32) == 3
    bias, kernel = feed_forward.hidden_dense.bias, feed_forward.output_dense.kernel
    bias.assign(np.where(unit, 1e4, bias))
    kernel.assign(np.where(unit[:, None], 0, kernel))
    with pytest.raises(ExportError, match=r"a token differs by [1-9][0-9.]* nats"):
        measured(translator, translator.for_decoding("int8", LINES), LINES)
