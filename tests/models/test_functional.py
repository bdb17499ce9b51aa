"""Ready models and those of one's own, combined through the functional API: what Keras does to any.

For those of one's own, see own_models.py.
"""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from helpers import random, randomize, to_numpy
from own_models import COMPOSED, OWN, source_of

from keras_tfmr import LabelSmoothedCrossEntropy
from keras_tfmr.layers import Decoder, LMHead, PositionalEmbedding
from keras_tfmr.models import Transformer, TransformerConfig, TranslationModel

VOCAB, SIZES = 20, dict(num_layers=1, d_model=8, num_heads=2, dff=16)
TINY = TransformerConfig.preset(
    "tiny", source_vocab=VOCAB, target_vocab=VOCAB, encoder_layers=1, decoder_layers=1
)
SOURCE = np.array([[5, 7, 3, 0], [4, 9, 11, 3]], "int32")
TARGET = np.array([[2, 9, 4], [2, 6, 0]], "int32")


def ids(name):
    return keras.Input((None,), dtype="int32", name=f"{name}_ids")


MODELS = {
    "ready": (lambda: Transformer(TINY), SOURCE),
    "own layers": (OWN["own layers"], SOURCE),
    "pictures": (OWN["pictures"], random(2, 8, 8, 3)),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """A model, its source, and its logits."""
    make, source = MODELS[request.param]
    model = make()
    randomize(model)
    return model, source, to_numpy(model([source, TARGET]))


def test_its_graph_can_be_read(case):
    model, source, logits = case
    lines = []
    model.summary(print_fn=lambda text, **_: lines.append(text), line_length=80)
    assert "Connected to" in lines[0] and "target_ids[0][0]" in lines[0]
    parts = [model.get_layer(name).output for name in ("encoder", "decoder")]
    context, x = map(to_numpy, keras.Model(model.inputs, parts)([source, TARGET]))
    assert len(context) == len(source)
    head = keras.Model(model.get_layer("decoder").output, model.output)
    np.testing.assert_allclose(head(x), logits, atol=1e-5)


@pytest.mark.needs("pydot", "dot")
def test_its_graph_can_be_drawn(case, tmp_path):
    keras.utils.plot_model(case[0], tmp_path / "model.png")
    assert (tmp_path / "model.png").stat().st_size > 10_000


def test_inputs_go_by_their_names(case):
    """In any order; other names are an error, and none are taken by the alphabet."""
    model, source, logits = case
    name, target = (tensor.name for tensor in model.inputs)
    for inputs in ({name: source, target: TARGET}, {target: TARGET, name: source}):
        np.testing.assert_allclose(model(inputs), logits, atol=1e-5)
    with pytest.raises(ValueError, match=rf"{name}.*encoder_token_ids.*{target}"):
        model({"encoder_token_ids": source, "decoder_token_ids": TARGET})


@pytest.mark.ci
@pytest.mark.backends("tensorflow")
def test_it_learns_from_a_pipeline_and_exports(case, tmp_path):
    """By Keras's `fit` and `export`."""
    import tensorflow as tf

    model, source, _ = case
    model = keras.models.clone_model(model)
    model.compile("adam", LabelSmoothedCrossEntropy())
    labels = np.pad(TARGET[:, 1:], [(0, 0), (0, 1)])
    inputs = dict(zip([tensor.name for tensor in model.inputs], (source, TARGET), strict=True))
    batches = tf.data.Dataset.from_tensors((inputs, labels)).repeat(8)
    losses = []
    after = keras.callbacks.LambdaCallback(on_batch_end=lambda _, logs: losses.append(logs["loss"]))
    model.fit(batches, verbose=0, shuffle=False, callbacks=[after])
    assert losses[-1] < losses[0]  # each the mean of all so far
    model.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "export"))
    np.testing.assert_allclose(served.serve([source, TARGET]), model([source, TARGET]), atol=1e-5)


ELSEWHERE = """
import sys
import keras, numpy as np
import keras_tfmr.models
for path in sys.argv[1:]:
    model = keras.models.load_model(path)
    source, target = np.load(path + ".source.npy"), np.load(path + ".target.npy")
    assert type(model) is keras_tfmr.TranslationModel
    np.save(path + ".logits.npy", keras.ops.convert_to_numpy(model([source, target])))
"""


@pytest.mark.ci
@pytest.mark.parametrize(
    "backend", ["jax", pytest.param("torch", marks=pytest.mark.needs("torch"))]
)
def test_a_file_is_of_every_backend(backend, tmp_path):
    """For this one, see tests/export/test_everywhere.py."""
    expected = {}
    for name, (make, source) in MODELS.items():
        path = f"{tmp_path / name}.keras"
        model = make()
        randomize(model)
        expected[path] = to_numpy(model([source, TARGET]))
        model.save(path)
        np.save(f"{path}.source.npy", source)
        np.save(f"{path}.target.npy", TARGET)
    environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    subprocess.run([sys.executable, "-c", ELSEWHERE, *expected], env=environment, check=True)
    for path, logits in expected.items():
        np.testing.assert_allclose(np.load(f"{path}.logits.npy"), logits, atol=1e-4)


def logits_of(source, target, head):
    embedding = PositionalEmbedding(VOCAB, 8)
    return head(Decoder(**SIZES)(embedding(target), embedding(source)))


SOFTMAX = keras.layers.Dense(VOCAB, activation="softmax")
# What makes a model, and the error.
UNDECODABLE = {
    "no target": (
        lambda s, t: TranslationModel(
            [s, other := ids("other")], logits_of(s, other, LMHead(VOCAB))
        ),
        "named 'target_ids'.*source_ids.*other_ids",
    ),
    "no source": (
        lambda s, t: TranslationModel(t, LMHead(VOCAB)(PositionalEmbedding(VOCAB, 8)(t))),
        "needs a source",
    ),
    "two outputs": (
        lambda s, t: TranslationModel([s, t], [logits_of(s, t, LMHead(VOCAB))] * 2),
        "dictionary with the key 'logits'",
    ),
    "softmax of a layer": (
        lambda s, t: TranslationModel([s, t], logits_of(s, t, SOFTMAX)), "ends in a softmax",
    ),
    "softmax of an operation": (
        lambda s, t: TranslationModel(
            [s, t], keras.ops.softmax(logits_of(s, t, LMHead(VOCAB)))
        ),
        "ends in a softmax",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECODABLE)
def test_what_cannot_be_decoded_is_an_error_when_it_is_made(name):
    make, message = UNDECODABLE[name]
    with pytest.raises(ValueError, match=message):
        make(ids("source"), ids("target"))


def test_several_sources_go_by_name():
    model = COMPOSED["boxes"]()
    known = source_of(model)
    for wrong in (list(known.values()), {"source_ids": known["source_ids"]}, known["source_ids"]):
        with pytest.raises(
            ValueError, match=r"dictionary of the inputs \['source_ids', 'language'\]"
        ):
            model.start(wrong, max_length=3)


def test_sample_weights_of_rank_1_then_2():
    """On one compiled model, whose step is traced for each."""
    model = OWN["own layers"]()
    model.compile("sgd", LabelSmoothedCrossEntropy(), jit_compile=False)
    for shape in ((2,), (2, 3), (2, 1)):
        weight = np.ones(shape, "float32")
        assert np.isfinite(model.train_on_batch([SOURCE, TARGET], TARGET, sample_weight=weight))
