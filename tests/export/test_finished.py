"""The copies that exports decode with have the outputs and searches of the models they are of."""

import formulas
import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_toys import assert_same, decode
from helpers import OPTIONS, random_ids, randomize, to_numpy
from own_models import COMPOSED, check_same, inputs, logits_of, source_of

from keras_tfmr import (
    Transformer,
    TransformerClassifier,
    TransformerConfig,
    TransformerLanguageModel,
)
from keras_tfmr.compat import flatten_layers
from keras_tfmr.finished import convert, int8, optimize_for_decoding
from keras_tfmr.finished.products import exact
from keras_tfmr.layers import Decoder, MultiHeadAttention
from keras_tfmr.precision import with_precision

TINY = TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)


def make(name, kind="translates", **fields):
    if kind == "own":
        return COMPOSED[name]()
    ready = Transformer if kind == "translates" else TransformerLanguageModel
    model = ready(TINY.replace(**OPTIONS[name], **fields))
    randomize(model)
    return model


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:int8 leaves layers")
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_model_of_ones_own_in_another_precision(name, precision, monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    model = make(name, "own")
    examples = model.source_list(source_of(model, 32))
    examples.insert(model.target_place, tf.constant(random_ids(32, 5, vocab=20)))
    copy = optimize_for_decoding(model, precision, [examples])
    assert copy.precision == precision
    arrays = inputs(model)
    exact, rounded = (logits_of(each, arrays) for each in (model, copy))
    assert 0 < np.abs(rounded - exact).std() < 0.05 * exact.std()

    @tf.function(autograph=False)
    def first_log_probs():
        step, state = copy.start(source_of(model), max_length=5)
        return step.next(arrays[model.target_place][:, 0], state)[0]

    np.testing.assert_allclose(
        to_numpy(first_log_probs()), formulas.log_softmax(rounded[:, 0]), atol=0.05
    )


@pytest.mark.parametrize("scale", [1, 1000])
def test_logits_of_any_size_have_their_normaliser(scale):
    model = make("logits of their own, pre-norm")
    kernel = model.get_layer("logits").dense.kernel
    kernel.assign(scale * kernel)
    copy = optimize_for_decoding(model)
    assert copy.bounded == (scale == 1)
    check_same(model, copy, atol=1e-4 * scale)


@pytest.mark.parametrize("beams", [1, 3])
def test_prompts_are_gone_on_with_as_by_the_model(beams):
    model = make("modern", "writes")
    prompts = np.array([[2, 4, 1, 4, 1], [2, 1, 1, 0, 0], [2, 2, 4, 4, 0]], "int32")
    options = dict(num_beams=beams, num_return_sequences=beams, eos_id=3, max_length=6)
    results = []
    for each in (model, optimize_for_decoding(model)):
        step, state, bos_ids, prefix = each.start_after(prompts, beams, max_length=6)
        results.append(decode(step, state, bos_ids=bos_ids, prefix=prefix, **options))
    assert_same(*results, range(3))


def test_a_copy_in_another_precision():
    model = make("paper")
    for made in (Transformer(TINY, dtype="bfloat16"), model):
        copy = optimize_for_decoding(made, "bfloat16")
        large = {weight.dtype for weight in copy.weights if len(weight.shape) == 2}
        assert large == {"bfloat16"} and copy.precision == "bfloat16"
    exact, rounded = (logits_of(each, inputs(model)) for each in (model, copy))
    assert np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()
    with pytest.raises(ValueError, match="int3"):
        optimize_for_decoding(model, "int3")
    with pytest.raises(ValueError, match="stays in its precision, bfloat16"):
        with_precision(copy, "float32")


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["translates", "writes"])
def test_lora_is_merged(kind):
    model = make("paper", kind)
    plain = logits_of(model, inputs(model))
    for layer in flatten_layers(model):
        if isinstance(layer, (keras.layers.Dense, keras.layers.Embedding)):
            layer.enable_lora(4)
    randomize(model, seed=3)
    tuned = logits_of(model, inputs(model))
    assert np.abs(tuned - plain).max() > 0.1, "LoRA does nothing"
    scale = np.abs(tuned).max()
    check_same(model, optimize_for_decoding(model), atol=1e-5 * scale)
    narrow = logits_of(with_precision(model, "bfloat16"), inputs(model))
    assert np.abs(narrow - tuned).max() < 0.1 * scale


class Another(MultiHeadAttention):
    """A layer that may do anything."""


def of_another_class(model):
    model.get_layer("decoder").layers[0].self_attention.attention.__class__ = Another


@pytest.mark.parametrize("case", ["class", "option"])
def test_a_layer_that_is_not_known_stays_as_it_is(case, monkeypatch):
    """And decodes by its own code, beside finished layers."""
    model = make("paper")
    if case == "class":
        of_another_class(model)
    else:
        known = convert.CONVERSIONS[Decoder]
        monkeypatch.setitem(
            convert.CONVERSIONS, Decoder, known._replace(options=known.options - {"gated"})
        )
    copy, reasons = convert.finished(model, exact("float32"))
    assert {layer.name for layer in reasons} == {"decoder"}
    check_same(model, copy, atol=1e-5)


def test_a_quantised_model_is_left_as_it_is():
    model = make("paper")
    model.quantize("int8")
    assert optimize_for_decoding(model) is model
    with pytest.raises(ValueError, match="neither finished nor quantised"):
        optimize_for_decoding(model, "int8")


def test_other_models_are_left_as_they_are():
    classifier = TransformerClassifier(TINY, 3)
    for model in (keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), classifier):
        assert optimize_for_decoding(model) is model
        with pytest.raises(ValueError, match="int8 takes a TranslationModel or LanguageModel"):
            optimize_for_decoding(model, "int8")
    narrow = optimize_for_decoding(classifier, "bfloat16")
    assert {weight.dtype for weight in narrow.weights} == {"bfloat16"}
