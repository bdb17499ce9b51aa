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
from own_models import OWN

from keras_tfmr import LabelSmoothedCrossEntropy
from keras_tfmr.layers import CausalDecoder, Decoder, LMHead, PositionalEmbedding
from keras_tfmr.models import LanguageModel, Transformer, TransformerConfig, TranslationModel

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


def test_a_clone_is_of_its_class_and_ties_the_same_weights(case):
    model, source, logits = case
    clone = keras.models.clone_model(model)
    assert type(clone) is TranslationModel
    assert [w.shape for w in clone.weights] == [w.shape for w in model.weights]
    clone.set_weights(model.get_weights())
    np.testing.assert_allclose(clone([source, TARGET]), logits, atol=1e-5)
    step, _ = clone.start(source, max_length=3)  # it can be decoded too
    assert step.num_beams == 1


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
import keras_tfmr
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
    """In a fresh process; for this backend, see test_model_files.py."""
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


def two_decoders(x, context):
    return Decoder(**SIZES)(Decoder(**SIZES)(x, context), context)


# What stands in the place of the embedding, of the context's and of the decoder, and the error.
UNDECODABLE = {
    "two decoders": (dict(decoder=two_decoders), "exactly one decoder.*Received: Decoder, Decoder"),
    "no decoder": (dict(decoder=lambda x, context: x), "exactly one decoder.*Received: none"),
    "one without context": (
        dict(decoder=lambda x, context: CausalDecoder(**SIZES)(x)), "Received: CausalDecoder",
    ),
    "changed ids": (dict(ids=lambda ids: ids + 1), "nothing may stand between"),
    "changed vectors": (dict(vectors=keras.layers.Dense(8)), "nothing may stand between"),
    "context of the target": (
        dict(decoder=lambda x, context: Decoder(**SIZES)(x, x)), "not of the target ids",
    ),
    "other arguments": (
        dict(decoder=lambda x, context: Decoder(**SIZES)(x, context, training=True)),
        "alone. Received: training",
    ),
    "logits of more": (dict(more=True), "of the decoder's output alone"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECODABLE)
def test_what_cannot_be_decoded_is_an_error_when_it_is_made(name):
    parts, message = UNDECODABLE[name]
    source, target, embedding = ids("source"), ids("target"), PositionalEmbedding(VOCAB, 8)
    same = lambda tensor: tensor  # noqa: E731
    x = parts.get("vectors", same)(embedding(parts.get("ids", same)(target)))
    decoder = parts.get("decoder") or Decoder(**SIZES)
    y = decoder(x, embedding(source))
    with pytest.raises(ValueError, match=message):
        TranslationModel([source, target], LMHead(VOCAB)(y + x if "more" in parts else y))


def test_a_language_model_has_a_decoder_without_a_context():
    source, target, embedding = ids("source"), ids("target"), PositionalEmbedding(VOCAB, 8)
    x = Decoder(**SIZES)(embedding(target), embedding(source))
    with pytest.raises(ValueError, match=r"a CausalDecoder\. Received: Decoder"):
        LanguageModel([source, target], LMHead(VOCAB)(x))


def test_sample_weights_of_rank_1_then_2():
    """On one compiled model, whose step is traced for each."""
    model = OWN["own layers"]()
    model.compile("sgd", LabelSmoothedCrossEntropy())
    for shape in ((2,), (2, 3), (2, 1)):
        weight = np.ones(shape, "float32")
        assert np.isfinite(model.train_on_batch([SOURCE, TARGET], TARGET, sample_weight=weight))
