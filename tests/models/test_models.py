"""TransformerConfig and the models built from it: translation, language, classification."""

import re

import formulas
import keras
import numpy as np
import pytest
from helpers import flat_numpy, no_warnings, random_ids, randomize, to_numpy

from keras_tfmr import LabelSmoothedCrossEntropy, MultiHeadAttention, recurrent
from keras_tfmr.models import (
    Transformer,
    TransformerClassifier,
    TransformerConfig,
    TransformerLanguageModel,
    TranslationModel,
)

SIZES = dict(source_vocab=20, target_vocab=20)
TINY = TransformerConfig.preset("tiny", **SIZES, encoder_layers=1, decoder_layers=1)
RECURRENT = recurrent.RNNSearchConfig.preset("tiny", **SIZES)


def batch():
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)
    source[1, 4:], target[1, 2:] = 0, 0
    return [source, target]


def test_presets():
    """Vaswani et al., table 3, and the tutorial's size."""
    sizes = ("encoder_layers", "decoder_layers", "d_model", "num_heads", "dff")
    expected = {
        "tutorial": (4, 4, 128, 8, 512),
        "base": (6, 6, 512, 8, 2048),
        "big": (6, 6, 1024, 16, 4096),
    }
    for name, numbers in expected.items():
        config = TransformerConfig.preset(name, source_vocab=90, target_vocab=90)
        assert tuple(getattr(config, size) for size in sizes) == numbers
    assert TransformerConfig.preset("tiny", dff=7).dff == 7


CONFIGS = [TransformerConfig, recurrent.Seq2SeqConfig, recurrent.RNNSearchConfig]
CONFIGS += [recurrent.ConvolutionalConfig, recurrent.LSTMNConfig, recurrent.MemoryNetworkConfig]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_is_json_and_names_what_cannot_be(kind):
    config = kind()
    assert kind.from_json(config.to_json()) == config
    for name, value in config.to_dict().items():
        sizes = (0, -1, 2.5) if type(value) is int or name == "key_dim" else ()
        wrong = (1, "no", None) if type(value) is bool else sizes
        for bad in (-0.1, 1.0, "0.1") if name.endswith("dropout_rate") else wrong:
            with pytest.raises(ValueError, match=f"Received: .*{re.escape(f'{name}={bad!r}')}"):
                config.replace(**{name: bad})
    with pytest.raises(ValueError, match=rf"\['wings'\].*Expected some of.*'{name}'"):
        kind.from_dict({"wings": 2})
    with pytest.raises(ValueError, match=f"'huge'.*Expected one of: {', '.join(kind.presets)}"):
        kind.preset("huge")


def test_sizes_that_do_not_go_together_are_named():
    for fields, message in (
        (dict(d_model=10, num_heads=4), r"divide.*Received: d_model=10, num_heads=4"),
        (dict(source_vocab=30), "must be equal.*source_vocab=30, target_vocab=20"),
    ):
        with pytest.raises(ValueError, match=message):
            TINY.replace(**fields)


def test_a_ready_model_keeps_its_config_and_one_of_ones_own_has_none():
    config = TINY.replace(positions="rotary", qk_norm=True)
    for model in (TransformerLanguageModel(config), TransformerClassifier(config, 3)):
        assert type(model).from_config(model.get_config()).config == model.config == config
        # Keras hands a clone the layers, which a function may have exchanged, and not the config.
        assert keras.models.clone_model(model).config is None
    ready = Transformer(TINY)
    x = keras.layers.Dense(TINY.d_model)(ready.get_layer("decoder").output)
    own = TranslationModel(ready.inputs, ready.get_layer("embedding")(x, reverse=True))
    assert own.config is None and type(own).from_config(own.get_config()).config is None


def test_the_loss_is_scaled_in_float16(tmp_path):
    """As Keras does it for models made under this policy; of clones and loaded models too."""
    model = Transformer(TINY, dtype="mixed_float16")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, keras.models.clone_model(model), loaded, Transformer(TINY)):
        each.compile("adam")
        scaled = isinstance(each.optimizer, keras.optimizers.LossScaleOptimizer)
        assert scaled == (each.compute_dtype == "float16")


def test_the_attention_of_every_layer_has_the_rate_of_its_own():
    model = Transformer(TINY.replace(dropout_rate=0.3, attention_dropout_rate=0.0))
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, MultiHeadAttention)]
    assert len(layers) == TINY.encoder_layers + 2 * TINY.decoder_layers
    assert {layer.dropout_rate for layer in layers} == {0.0}
    assert model.get_layer("encoder").layers[0].feed_forward.dropout_rate == 0.3


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, [(20, 32)]),
        ({"tied_logits": False}, [(20, 32), (32, 20)]),
        ({"joint_vocab": False, "source_vocab": 30}, [(30, 32), (20, 32)]),
    ],
)
def test_embeddings_are_shared_as_configured(fields, expected):
    shapes = [tuple(weight.shape) for weight in Transformer(TINY.replace(**fields)).weights]
    assert sorted(shape for shape in shapes if {20, 30} & {*shape}) in (
        sorted(expected), sorted([*expected, (20,)])  # a bias
    )  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(
    "make, policy, jit_compile",
    [
        (lambda: Transformer(TINY), "mixed_float16", True),
        (lambda: recurrent.RNNSearchModel(RECURRENT), "float32", False),
    ],
)
def test_training_lowers_the_loss(make, policy, jit_compile):
    with recurrent.dtype_policy(policy), no_warnings():
        model = make()
        assert (model.output.dtype, model.output.shape) == ("float32", (None, None, 20))
        loss, optimizer = LabelSmoothedCrossEntropy(0.1), keras.optimizers.Adam(0.003)
        if policy == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=128.0)
        model.compile(optimizer, loss, jit_compile=jit_compile)
        inputs = batch()
        labels = np.pad(inputs[1][:, 1:], [(0, 0), (0, 1)])
        before = float(loss(labels, model(inputs)))
        for _ in range(3):
            model.train_on_batch(inputs, labels)
        assert float(loss(labels, model(inputs))) < before


def test_explain():
    options = dict(norm_first=True, key_dim=6, encoder_layers=2, decoder_layers=2)
    model = Transformer(TINY.replace(source_vocab=30, joint_vocab=False, **options))
    source, target = batch()
    logits, scores = model.explain(source, target)
    np.testing.assert_allclose(logits, model([source, target]), atol=1e-5)
    shapes = {"cross": (3, 2, 5, 6), "encoder": (3, 2, 6, 6), "decoder": (3, 2, 5, 5)}
    for name, shape in shapes.items():
        layers = flat_numpy(getattr(scores, name))
        assert [layer.shape for layer in layers] == [shape] * 2
        for layer in layers:
            np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-5)
    for layer in flat_numpy([scores.cross, scores.encoder]):
        assert (layer[1, :, :, 4:] == 0).all()  # padding of the source
    for layer in flat_numpy(scores.decoder):
        assert not np.triu(layer, 1).any()  # the future


def test_sequences_of_one_token_warn_of_nothing():
    """Keras warns of a softmax over a single position; one word is an ordinary sentence."""
    source, target = np.array([[5]], "int32"), np.array([[2]], "int32")
    model = Transformer(TINY)
    with no_warnings():
        logits = to_numpy(model([source, target]))
        step, state = model.start(source, max_length=1)
        log_probs, _ = step.next(keras.ops.convert_to_tensor(target[:, 0]), state)
    np.testing.assert_allclose(formulas.log_softmax(logits[:, 0]), to_numpy(log_probs), atol=1e-5)


def test_a_classifier_reads_the_mean_of_the_encoder():
    ids = random_ids(3, 5, vocab=20)
    ids[1, 2:] = ids[2] = 0
    model = TransformerClassifier(TINY, 3)
    randomize(model)
    vectors = to_numpy(keras.Model(model.inputs[0], model.get_layer("encoder").output)(ids))
    real = (ids != 0)[:, :, None]
    mean = (vectors * real).sum(1) / real.sum(1).clip(1)
    kernel, bias = map(to_numpy, model.get_layer("logits").dense.weights)
    np.testing.assert_allclose(model(ids), mean @ kernel + bias, atol=1e-4)
