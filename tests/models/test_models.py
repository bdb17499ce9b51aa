"""TransformerConfig and the translation model built from it."""

import dataclasses
import warnings

import formulas
import keras
import numpy as np
import pytest
from helpers import (
    POLICIES,
    dtype_policy,
    flat_numpy,
    layer_weights,
    no_warnings,
    random_ids,
    randomize,
    to_numpy,
)

from keras_tfmr import (
    Decoder,
    Encoder,
    LabelSmoothedCrossEntropy,
    MultiHeadAttention,
    PositionalEmbedding,
    TiedLogits,
    TransformerConfig,
    TranslationModel,
)

TINY = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)
VARIANTS = {
    "joint_tied": TINY,
    "separate": TINY.replace(source_vocab=30, joint_vocab=False, tied_logits=False),
    "separate_tied": TINY.replace(source_vocab=30, joint_vocab=False, tied_logits=True),
    "joint_untied": TINY.replace(tied_logits=False),
    "pre_norm_learned": TINY.replace(norm_first=True, positions="learned", max_length=16),
    "uneven_value_dim": TINY.replace(encoder_layers=3, decoder_layers=1, key_dim=6, value_dim=5),
}


def batch(rows=3, vocab=20):
    source, target = random_ids(rows, 6, vocab=vocab), random_ids(rows, 5, vocab=vocab, seed=1)
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


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.d_model = 64
    assert TINY.replace(d_model=64).d_model == 64 and TINY.d_model == 32


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(d_model=10, num_heads=4), "divisible.*Received: d_model=10, num_heads=4"),
        (dict(num_heads=0), "Received: num_heads=0"),
        (dict(encoder_layers=-1), "Received: encoder_layers=-1"),
        (dict(dff=2.5), "Received: dff=2.5"),
        (dict(dropout_rate=1.0), "Received: dropout_rate=1.0"),
        (dict(attention_dropout_rate=-0.1), "Received: attention_dropout_rate=-0.1"),
        (dict(source_vocab=30), "must be equal.*source_vocab=30, target_vocab=20"),
        (dict(max_length=0), "Received: max_length=0"),
        (dict(key_dim=0), "Received: key_dim=0"),
        (dict(value_dim=-3), "Received: value_dim=-3"),
    ],
)
def test_bad_config(fields, message):
    with pytest.raises(ValueError, match=message):
        TINY.replace(**fields)


def test_the_attention_of_every_layer_has_the_rate_of_its_own():
    model = TranslationModel(TINY.replace(dropout_rate=0.3, attention_dropout_rate=0.0))
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, MultiHeadAttention)]
    assert len(layers) == TINY.encoder_layers + 2 * TINY.decoder_layers
    assert {layer.dropout_rate for layer in layers} == {0.0}
    assert model.encoder.layers[0].feed_forward.dropout_rate == 0.3


def test_unknown_preset_and_field():
    with pytest.raises(ValueError, match=r"huge.*Expected one of: tiny, small, tutorial, base"):
        TransformerConfig.preset("huge")
    with pytest.raises(ValueError, match=r"\['heads'\].*num_heads"):
        TransformerConfig.from_json('{"heads": 8}')


@pytest.mark.parametrize("name", ["joint_tied", "separate"])
def test_whole_model_by_the_formulas(name):
    """Embedding, encoder, decoder and logits of the paper, in NumPy."""
    model = TranslationModel(VARIANTS[name])
    randomize(model)
    source, target = batch()
    context = to_numpy(model.encoder.embedding(source))
    for layer in model.encoder.layers:
        context = formulas.encoder_layer(context, layer_weights(layer), (source != 0)[:, None])
    x = to_numpy(model.decoder.embedding(target))
    for layer in model.decoder.layers:
        x = formulas.decoder_layer(x, context, layer_weights(layer), source != 0)
    if name == "joint_tied":
        expected = x @ to_numpy(model.decoder.embedding.tokens.embeddings).T
    else:
        kernel, bias = (to_numpy(weight) for weight in model.logits.dense.weights)
        expected = x @ kernel + bias
    real = target != 0  # a padded target position sees padding before it here, none there
    came = to_numpy(model([source, target]))
    np.testing.assert_allclose(came[real], expected[real], atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("name", ["joint_tied", "separate"])
@pytest.mark.parametrize("policy", POLICIES)
def test_logits_are_float32(name, policy):
    with dtype_policy(policy), no_warnings():
        model = TranslationModel(VARIANTS[name])
        symbolic = model([keras.Input((None,), dtype="int32") for _ in range(2)])
        assert symbolic.dtype == "float32"
        assert symbolic.shape == (None, None, 20)
        logits = model(batch())
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        assert logits.shape == (3, 5, 20)
        assert np.isfinite(to_numpy(logits)).all()


def test_embeddings_are_shared_as_configured():
    def sizes(name):
        return sum(
            w.shape[0] in (20, 30) and len(w.shape) == 2
            for w in TranslationModel(VARIANTS[name]).weights
        )

    assert [sizes(n) for n in ("joint_tied", "separate_tied", "joint_untied")] == [1, 2, 1]
    untied = TranslationModel(VARIANTS["joint_untied"])
    assert tuple(untied.logits.dense.kernel.shape) == (32, 20)


@pytest.mark.parametrize("name", VARIANTS)
def test_saved_and_loaded_in_a_fresh_process(name, fresh, tmp_path):
    model = TranslationModel(VARIANTS[name])
    randomize(model)
    path = tmp_path / "model.keras"
    model.save(path)
    (loaded,) = fresh.outputs(path, batch())
    np.testing.assert_allclose(loaded, model(batch()), atol=1e-4, rtol=1e-4)


def test_saved_after_training_under_mixed_precision(fresh, tmp_path):
    """With its optimiser, loss and policy."""
    with dtype_policy("mixed_bfloat16"):
        model = TranslationModel(TINY)
    model.compile("adam", LabelSmoothedCrossEntropy(0.1))
    source, target = batch()
    model.train_on_batch([source, target], target)
    path = tmp_path / "model.keras"
    model.save(path)
    (loaded,) = fresh.outputs(path, [source, target])
    np.testing.assert_allclose(loaded, model([source, target]), atol=0.05)


def test_weights_file_into_a_model_of_the_same_config(tmp_path):
    for config in VARIANTS.values():
        model = TranslationModel(config)
        randomize(model)
        path = tmp_path / "model.weights.h5"
        model.save_weights(path)
        again = TranslationModel(TransformerConfig.from_json(config.to_json()))
        again.load_weights(path)
        np.testing.assert_allclose(again(batch()), model(batch()), atol=1e-5)
        names = sorted(weight.path for weight in model.weights)
        assert len(set(names)) == len(names)
        assert sorted(weight.path for weight in again.weights) == names


def test_layers_combined_by_hand_keep_what_they_share(fresh, tmp_path):
    """One embedding for both sides and the logits, in a plain functional model."""
    sizes = dict(num_layers=1, d_model=8, num_heads=2, dff=16)
    embedding = PositionalEmbedding(20, 8)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    context = Encoder(**sizes, embedding=embedding)(source)
    vectors = Decoder(**sizes, embedding=embedding)(target, context)
    model = keras.Model([source, target], TiedLogits(embedding)(vectors))
    randomize(model)
    path = tmp_path / "model.keras"
    model.save(path)
    (loaded,) = fresh.outputs(path, batch())
    np.testing.assert_allclose(loaded, model(batch()), atol=1e-4)
    again = keras.models.load_model(path)
    assert sum(tuple(weight.shape) == (20, 8) for weight in again.weights) == 1
    with pytest.warns(UserWarning, match="TiedLogits"):  # a config alone cannot share
        keras.Model.from_config(model.get_config())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_lowers_the_loss(policy, jit_compile):
    with dtype_policy(policy), no_warnings():
        model = TranslationModel(TINY.replace(encoder_layers=1, decoder_layers=1))
        loss = LabelSmoothedCrossEntropy(0.1)
        optimizer = keras.optimizers.Adam(0.003)
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
    model = TranslationModel(TINY)
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


def quantized(name):
    model = TranslationModel(VARIANTS[name])
    randomize(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize("int8")
    return model


@pytest.mark.parametrize("name", ["joint_tied", "uneven_value_dim"])
def test_steps_of_a_quantized_model(name):
    """Its steps read integer weights, whose scales they must not forget."""
    model = quantized(name)
    source, target = batch()
    expected = formulas.log_softmax(to_numpy(model([source, target])))
    for compiled in (False, True):
        step, state = model.start(source, max_length=5)
        step.shrinks = step.shrinks and not compiled
        for index in range(5):
            log_probs, state = step.next(keras.ops.convert_to_tensor(target[:, index]), state)
            # int8 rounds the keys of a whole sentence otherwise than those of one position.
            real = target[:, index] != 0
            np.testing.assert_allclose(to_numpy(log_probs)[real], expected[real, index], atol=0.15)


def test_bad_input():
    model = TranslationModel(TINY)
    source, target = batch()
    with pytest.raises(ValueError, match=r"\(3,\)"):
        model([source[:, 0], target])
    learned = TranslationModel(VARIANTS["pre_norm_learned"])
    with pytest.raises(ValueError, match=r"max_length=16.*Received.*17"):
        learned([random_ids(1, 17, vocab=20), target[:1]])


def test_sequences_of_one_token_warn_of_nothing():
    """Keras warns of a softmax over a single position; one word is an ordinary sentence."""
    source, target = np.array([[5]], "int32"), np.array([[2]], "int32")
    model = TranslationModel(TINY)
    with no_warnings():
        logits = to_numpy(model([source, target]))
        step, state = model.start(source, max_length=1)
        log_probs, _ = step.next(target[:, 0], state)
    np.testing.assert_allclose(
        to_numpy(keras.ops.log_softmax(logits[:, 0])), to_numpy(log_probs), atol=1e-5
    )


def test_the_first_step_is_traced_once():
    """Keras by itself has the optimizer make its variables in the first trace, and traces again."""
    traces = []

    class Counting(TranslationModel):
        def train_step(self, *arguments):
            traces.append(1)
            return super().train_step(*arguments)

    model = Counting(TINY)
    model.compile(keras.optimizers.Adam(1e-3), LabelSmoothedCrossEntropy(0.1))
    source, target = batch()
    before = float(model.evaluate([source, target], target, verbose=0))
    for _ in range(3):
        model.train_on_batch([source, target], target)
    assert len(traces) == 1
    assert float(model.evaluate([source, target], target, verbose=0)) < before
