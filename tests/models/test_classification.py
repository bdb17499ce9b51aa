"""The encoder with a head for sequences and one for tokens."""

import keras
import numpy as np
import pytest
from helpers import POLICIES, dtype_policy, no_warnings, random, random_ids, randomize, to_numpy

from keras_tfmr import MeanOverTokens, SequenceClassifier, TokenClassifier, TransformerConfig

CONFIG = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)
KINDS = [SequenceClassifier, TokenClassifier]


def test_mean_over_real_tokens():
    x = random(3, 4, 8)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
    output = to_numpy(MeanOverTokens()(x, mask=mask))
    expected = [x[0].mean(0), x[1, :2].mean(0), np.zeros(8)]
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_allclose(MeanOverTokens()(x), x.mean(1), atol=1e-6)


def test_heads_read_the_encoder():
    ids = random_ids(3, 5, vocab=20)
    ids[1, 2:] = 0
    for kind in KINDS:
        model = kind(CONFIG, 3)
        randomize(model)
        vectors = to_numpy(model.encoder(ids))
        if kind is SequenceClassifier:
            real = (ids != 0)[:, :, None]
            vectors = (vectors * real).sum(1) / real.sum(1)
        kernel, bias = (to_numpy(weight) for weight in model.logits.dense.weights)
        np.testing.assert_allclose(model(ids), vectors @ kernel + bias, atol=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_dtype(kind, policy):
    with dtype_policy(policy), no_warnings():
        model = kind(CONFIG, 3)
        expected = (2, 3) if kind is SequenceClassifier else (2, 5, 3)
        logits = model(random_ids(2, 5, vocab=20))
        assert logits.shape == expected
        assert (
            model(keras.Input((None,), dtype="int32")).dtype
            == keras.backend.standardize_dtype(logits.dtype)
            == "float32"
        )
        assert model.output.shape == (None, *expected[1:-1], 3) or kind is TokenClassifier


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_in_a_fresh_process(kind, fresh, tmp_path):
    model = kind(CONFIG, 3)
    randomize(model)
    ids = random_ids(2, 5, vocab=20)
    path = tmp_path / "model.keras"
    model.save(path)
    (loaded,) = fresh.outputs(path, [ids])
    np.testing.assert_allclose(loaded, model(ids), atol=1e-4)


def test_learns_whether_a_token_occurs():
    """Is there a 7 in the sequence? And, per token: is it a 7?"""
    ids = random_ids(64, 6, vocab=20)
    ids[::2, 3] = 7
    labels = {SequenceClassifier: (ids == 7).any(axis=1), TokenClassifier: ids == 7}
    for kind in KINDS:
        keras.utils.set_random_seed(0)
        model = kind(CONFIG.replace(encoder_layers=1, dropout_rate=0.0), 2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
        for _ in range(40):
            model.train_on_batch(ids, labels[kind].astype("int32"))
        accuracy = (to_numpy(model(ids)).argmax(-1) == labels[kind]).mean()
        assert accuracy > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_bad_number_of_classes(kind):
    for bad in (0, -3, 2.5):
        with pytest.raises(ValueError, match=f"num_classes={bad}"):
            kind(CONFIG, bad)
