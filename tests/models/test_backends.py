"""The models on Keras's other backends, in processes of their own, against the one in use here.

Weights and inputs are the same numbers everywhere. A process runs this file: `python
tests/models/test_backends.py FILE.npz`. torch is no dependency: where it is not installed, that
part is skipped.
"""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

import keras_tfmr
from keras_tfmr import recurrent
from keras_tfmr.decoding import beam_search, greedy, sample

VOCAB, START, END, LENGTH = 50, 2, 3, 7
SIZES = {"source_vocab": VOCAB, "target_vocab": VOCAB}
SOURCE = np.array([[5, 9, 7, 3], [8, 3, 0, 0], [6, 6, 3, 0]], "int32")
TARGET = np.array([[2, 9, 4], [2, 5, 0], [2, 8, 7]], "int32")
OPTIONS = {"bos_ids": np.full(3, START, "int32"), "eos_id": END, "max_length": LENGTH}


def tiny(kind, **fields):
    """A model of a preset; the head of a classifier has three classes."""
    config = kind.config_class.preset("tiny", **SIZES, **fields)
    return kind(config, 3) if kind is keras_tfmr.SequenceClassifier else kind(config)


def with_weights(model):
    generator = np.random.default_rng(3)
    model.set_weights([0.3 * generator.normal(size=w.shape) for w in model.get_weights()])
    return model


def translated(model):
    step, state = model.start(ops.convert_to_tensor(SOURCE), num_beams=3, max_length=LENGTH)
    banned = {"banned_ids": (0, 1, START)}
    found = beam_search(step, state, num_beams=3, num_return_sequences=3, **banned, **OPTIONS)
    return [model([SOURCE, TARGET]), found.ids, found.scores]


def completed(model):
    options = {**OPTIONS, "min_length": 3}
    decoded = greedy(*model.start(3, max_length=LENGTH), **options)
    drawn = sample(*model.start(3, max_length=LENGTH), **options, seed=1, top_k=9, top_p=0.9)
    shape = ops.shape(drawn.ids)  # the noise is the backend's own
    return [model(TARGET), decoded.ids, decoded.scores, shape]


def trained(model):
    """Its weights after one step of gradient descent; the same everywhere if dropout is 0."""
    metrics = [keras_tfmr.TokenAccuracy(), keras_tfmr.Perplexity()]
    loss = keras_tfmr.LabelSmoothedCrossEntropy(0.1)
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=metrics)
    model.train_on_batch([SOURCE, TARGET], np.roll(TARGET, -1, axis=1))
    return model.get_weights()


def answers():
    """NumPy arrays, by what gave them."""
    translation = keras_tfmr.TranslationModel
    still, dropping = (tiny(translation, dropout_rate=rate) for rate in (0.0, 0.5))
    lstmn = recurrent.LSTMNLanguageModel(recurrent.LSTMNConfig(VOCAB, embedding_dim=8, units=8))
    stories = recurrent.MemoryNetwork(recurrent.MemoryNetworkConfig(vocab=VOCAB, width=8))
    separate = tiny(translation, joint_vocab=False, positions="learned")
    found = {
        "separate": translated(with_weights(separate)),
        "language": completed(with_weights(tiny(keras_tfmr.LanguageModel))),
        "LSTMN": completed(with_weights(lstmn)),
        "memory network": [with_weights(stories)([SOURCE[:, None], TARGET])],
        "classifier": [with_weights(tiny(keras_tfmr.SequenceClassifier))(TARGET)],
        "weights after a step": trained(with_weights(still)),
        "finite after dropout": [np.isfinite(weight).all() for weight in trained(dropping)],
    }
    kinds = recurrent.RNNSearchModel, recurrent.Seq2SeqModel, recurrent.ConvolutionalModel
    found |= {kind.__name__: translated(with_weights(tiny(kind))) for kind in (translation, *kinds)}
    return {
        f"{name}, {place}": np.asarray(ops.convert_to_numpy(value))
        for name, values in found.items()
        for place, value in enumerate(values)
    }


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
def test_answers_do_not_depend_on_the_backend(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    file, environment = tmp_path / "answers.npz", {**os.environ, "KERAS_BACKEND": backend}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # it would compile for minutes
    run = subprocess.run(
        [sys.executable, __file__, file],
        env=environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split()[-1] == "False", "TensorFlow was imported"
    expected = answers()
    with np.load(file) as found:
        assert set(found) == set(expected)
        for name, array in expected.items():
            assert found[name].shape == array.shape, name
            np.testing.assert_allclose(found[name], array, atol=1e-4, err_msg=name)


if __name__ == "__main__":
    np.savez(sys.argv[1], **answers())
    print("tensorflow" in sys.modules)
