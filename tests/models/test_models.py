"""TransformerConfig and the models built from it: translation, language, classification."""

import functools
import re

import formulas
import keras
import numpy as np
import pytest
from decoding_toys import decode
from helpers import flat_numpy, no_warnings, random_ids, randomize, to_numpy

from keras_tfmr import LabelSmoothedCrossEntropy, MultiHeadAttention, SequenceClassifier, recurrent
from keras_tfmr.layers.base import dtype_policy
from keras_tfmr.models import LanguageModel, TokenClassifier, TransformerConfig, TranslationModel

TINY = TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)
RECURRENT = recurrent.RNNSearchConfig.preset("tiny", source_vocab=20, target_vocab=20)
VARIANTS = {
    "joint_tied": TINY,
    "separate": TINY.replace(
        source_vocab=30, joint_vocab=False, tied_logits=False, norm_first=True, key_dim=6,
        value_dim=5, encoder_layers=2, decoder_layers=2,
    ),
    "separate_tied": TINY.replace(source_vocab=30, joint_vocab=False, tied_logits=True),
    "joint_untied": TINY.replace(tied_logits=False),
}  # fmt: skip


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
        sizes = (0, -1, 2.5) if type(value) is int or name in ("key_dim", "value_dim") else ()
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
        (dict(d_model=10, num_heads=4), "divisible.*Received: d_model=10, num_heads=4"),
        (dict(source_vocab=30), "must be equal.*source_vocab=30, target_vocab=20"),
    ):
        with pytest.raises(ValueError, match=message):
            TINY.replace(**fields)


def test_the_attention_of_every_layer_has_the_rate_of_its_own():
    model = TranslationModel(TINY.replace(dropout_rate=0.3, attention_dropout_rate=0.0))
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, MultiHeadAttention)]
    assert len(layers) == TINY.encoder_layers + 2 * TINY.decoder_layers
    assert {layer.dropout_rate for layer in layers} == {0.0}
    assert model.encoder.layers[0].feed_forward.dropout_rate == 0.3


def test_embeddings_are_shared_as_configured():
    tables = []
    for name in ("joint_tied", "separate_tied", "joint_untied"):
        shapes = [tuple(weight.shape) for weight in TranslationModel(VARIANTS[name]).weights]
        tables.append(sum(shape in ((20, 32), (30, 32)) for shape in shapes))
    assert tables == [1, 2, 1] and (32, 20) in shapes


class Counting:
    traces = 0

    def train_step(self, *arguments):
        self.traces += 1
        return super().train_step(*arguments)


@pytest.mark.parametrize(
    "kind, config, policy, jit_compile",
    [
        (TranslationModel, TINY, "float32", True),
        (TranslationModel, TINY, "mixed_float16", False),
        (recurrent.RNNSearchModel, RECURRENT, "float32", False),
    ],
)
def test_training_lowers_the_loss_in_one_trace(kind, config, policy, jit_compile):
    """Keras by itself has the optimizer make its variables in the first trace, and traces again."""
    with dtype_policy(policy), no_warnings():
        model = type("Own", (Counting, kind), {})(config)
        symbolic = model([keras.Input((None,), dtype="int32") for _ in range(2)])
        assert (symbolic.dtype, symbolic.shape) == ("float32", (None, None, 20))
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
        assert model.traces == 1


def test_explain():
    model = TranslationModel(VARIANTS["separate"])
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
    model = TranslationModel(TINY)
    with no_warnings():
        logits = to_numpy(model([source, target]))
        step, state = model.start(source, max_length=1)
        log_probs, _ = step.next(target[:, 0], state)
    np.testing.assert_allclose(formulas.log_softmax(logits[:, 0]), to_numpy(log_probs), atol=1e-5)


def language_model(**fields):
    model = LanguageModel(TINY.replace(source_vocab=5, target_vocab=5, **fields))
    randomize(model)
    return model


@pytest.mark.parametrize(
    "fields, beams, compiled",
    [
        ({}, 3, True),
        ({"positions": "rotary", "num_kv_heads": 1}, 1, False),
        ({"positions": "relative"}, 3, False),
    ],
)
def test_prompts_read_in_one_pass_go_on_as_token_by_token(fields, beams, compiled):
    model = language_model(**fields)
    prompts = np.array([[2, 4, 1, 4, 1], [2, 1, 1, 0, 0], [2, 2, 4, 4, 0]], "int32")
    common, new = 3, 20  # more than the first room of a cache
    search = functools.partial(
        decode, num_beams=beams, num_return_sequences=beams, eos_id=3, max_length=new
    )
    search_all = functools.partial(search, max_length=new + common - 1)

    def token_by_token(prompts):
        step, state = model.start(3, beams, max_length=new + common - 1)
        return search_all(step, state, bos_ids=prompts[:, 0], prefix=prompts[:, 1:])

    def in_one_pass(prompts):
        step, state, bos_ids, prefix = model.start_after(prompts, beams, max_length=new)
        step.shrinks = step.shrinks and not compiled
        return search(step, state, bos_ids=bos_ids, prefix=prefix)

    if compiled and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        in_one_pass = tf.function(in_one_pass, jit_compile=True)
    expected, result = token_by_token(prompts), in_one_pass(keras.ops.convert_to_tensor(prompts))
    np.testing.assert_array_equal(result.ids, to_numpy(expected.ids)[:, :, common - 1 :])
    read = to_numpy(model.log_prob(prompts[:, :common]))[:, None]
    np.testing.assert_allclose(to_numpy(result.log_probs) + read, expected.log_probs, atol=1e-4)


@pytest.mark.parametrize("kind", [SequenceClassifier, TokenClassifier])
def test_heads_read_the_encoder(kind):
    ids = random_ids(3, 5, vocab=20)
    ids[1, 2:] = ids[2] = 0
    model = kind(TINY, 3)
    randomize(model)
    vectors = to_numpy(model.encoder(ids))
    if kind is SequenceClassifier:
        real = (ids != 0)[:, :, None]
        vectors = (vectors * real).sum(1) / real.sum(1).clip(1)
    kernel, bias = (to_numpy(weight) for weight in model.logits.dense.weights)
    np.testing.assert_allclose(model(ids), vectors @ kernel + bias, atol=1e-4)


def test_bad_number_of_classes():
    for bad in (0, -3, 2.5):
        with pytest.raises(ValueError, match=f"num_classes={bad}"):
            SequenceClassifier(TINY, bad)
