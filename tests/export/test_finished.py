"""The copies that exports decode with have the outputs and searches of the models they are of.

Those of every layer, option and field are in test_everywhere.py.
"""

import formulas
import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_toys import assert_same, decode
from everywhere_models import ids, model_of
from helpers import random_ids, randomize, to_numpy
from own_models import COMPOSED, SIZES, check_same, inputs, logits_of, source_of

from keras_tfmr.compat import flatten_layers
from keras_tfmr.finished import convert, int8, optimize_for_decoding
from keras_tfmr.finished.products import exact
from keras_tfmr.layers import Decoder, Encoder, LMHead, MultiHeadAttention, PositionalEmbedding
from keras_tfmr.models import TranslationModel
from keras_tfmr.precision import with_precision


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:int8 leaves layers")
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_model_of_ones_own_in_another_precision(name, precision, monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    model = model_of(name)
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
    model = model_of("logits of their own, pre-norm")
    kernel = model.get_layer("logits").dense.kernel
    kernel.assign(scale * kernel)
    copy = optimize_for_decoding(model)
    assert copy.bounded == (scale == 1)
    check_same(model, copy, atol=1e-4 * scale)


def test_prompts_are_gone_on_with_as_by_the_model():
    model = model_of("modern, a language model")
    prompts = np.array([[2, 4, 1, 4, 1], [2, 1, 1, 0, 0], [2, 2, 4, 4, 0]], "int32")
    options = dict(num_beams=3, num_return_sequences=3, eos_id=3, max_length=6)
    results = []
    for each in (model, optimize_for_decoding(model)):
        step, state, bos_ids, prefix = each.start_after(prompts, 3, max_length=6)
        results.append(decode(step, state, bos_ids=bos_ids, prefix=prefix, **options))
    assert_same(*results, range(3))


def test_a_copy_in_another_precision():
    model = model_of("paper")
    copy = optimize_for_decoding(model, "bfloat16")
    large = {weight.dtype for weight in copy.weights if len(weight.shape) == 2}
    assert large == {"bfloat16"} and copy.precision == "bfloat16"
    exact, rounded = (logits_of(each, inputs(model)) for each in (model, copy))
    assert np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()
    with pytest.raises(ValueError, match="int3"):
        optimize_for_decoding(model, "int3")
    with pytest.raises(ValueError, match="stays in its precision, bfloat16"):
        with_precision(copy, "float32")


@pytest.mark.ci
def test_lora_is_merged():
    """Of Keras's own layers too, whose files hold it merged."""
    model = model_of("paper")
    plain = logits_of(model, inputs(model))
    for layer in flatten_layers(model):
        if isinstance(layer, (keras.layers.Dense, keras.layers.Embedding)):
            layer.enable_lora(4)
    randomize(model, seed=3)
    tuned = logits_of(model, inputs(model))
    assert np.abs(tuned - plain).max() > 0.1, "LoRA does nothing"
    check_same(model, optimize_for_decoding(model), atol=1e-5 * np.abs(tuned).max())
    narrow = logits_of(with_precision(model, "bfloat16"), inputs(model))
    assert np.abs(narrow - tuned).max() < 0.1 * np.abs(tuned).max()


def test_what_stays_in_float32_is_said(monkeypatch):
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    source_ids, target_ids = ids("source"), ids("target")
    embedding = PositionalEmbedding(20, 16, mask_zero=False)
    context = Encoder(**SIZES)(embedding(source_ids))
    decoder = Decoder(**SIZES, norm=keras.layers.LayerNormalization(), name="writer")
    nested = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(16)])
    x = nested(decoder(embedding(target_ids), context))
    model = TranslationModel([source_ids, target_ids], LMHead(20)(x))
    examples = [[random_ids(4, 6, vocab=20), random_ids(4, 5, vocab=20)]]
    said = (
        "in float32: 'writer', because its norm is a LayerNormalization; 'sequential.*', because "
        "it is a Sequential, which has no finished form"
    )
    with pytest.warns(UserWarning, match=said):
        copy = optimize_for_decoding(model, "int8", examples)
    assert copy.precision == "int8"
    stay = sum(copy.get_layer(layer.name).count_params() for layer in (decoder, nested))
    assert 0 < int8.share_of_int8(copy) < 1 - stay / copy.count_params()
    with pytest.raises(ValueError, match="int8 needs `examples`"):
        optimize_for_decoding(model, "int8")


class Another(MultiHeadAttention):
    """A layer that may do anything."""


@pytest.mark.parametrize("case", ["class", "option"])
def test_a_layer_that_is_not_known_stays_as_it_is(case, monkeypatch):
    """And decodes by its own code, beside finished layers."""
    model = model_of("paper")
    if case == "class":
        model.get_layer("decoder").layers[0].self_attention.attention.__class__ = Another
    else:
        known = convert.CONVERSIONS[Decoder]
        monkeypatch.setitem(
            convert.CONVERSIONS, Decoder, known._replace(options=known.options - {"gated"})
        )
    copy, reasons = convert.finished(model, exact("float32"))
    assert {layer.name for layer in reasons} == {"decoder"}
    check_same(model, copy, atol=1e-5)


def test_a_quantised_model_and_other_models_are_left_as_they_are():
    quantised, classifier = model_of("quantised"), model_of("classifier")
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for model, said in (
        (quantised, "neither finished nor quantised"),
        (classifier, "int8 takes a TranslationModel or LanguageModel"),
        (other, "int8 takes a TranslationModel or LanguageModel"),
    ):
        assert optimize_for_decoding(model) is model
        with pytest.raises(ValueError, match=said):
            optimize_for_decoding(model, "int8")
    narrow = optimize_for_decoding(classifier, "bfloat16")
    assert {weight.dtype for weight in narrow.weights} == {"bfloat16"}


@pytest.mark.filterwarnings("ignore:Layer 'conv1d.*mask")
@pytest.mark.parametrize("mixes", [False, True])
def test_padding_is_left_out_where_nobody_reads_it(mixes):
    """A convolution reads what an encoder gives at padding."""
    source_ids, target_ids = (
        keras.Input((None,), dtype="int32", name=f"{side}_ids") for side in ("source", "target")
    )
    embedding, sizes = PositionalEmbedding(20, 16), dict(num_layers=1, d_model=16, dff=32)
    context = Encoder(**sizes, num_heads=2, name="encoder")(embedding(source_ids))
    if mixes:
        context = keras.layers.Conv1D(16, 3, padding="same")(context)
    x = Decoder(**sizes, num_heads=2)(embedding(target_ids), context)
    model = TranslationModel([source_ids, target_ids], LMHead(20)(x))
    randomize(model)
    arrays = [np.array([[3, 4, 5, 6], [3, 4, 0, 0]]), np.array([[1, 3], [1, 4]])]
    copy = optimize_for_decoding(model)
    assert copy.get_layer("encoder").leaves_out_padding is not mixes
    np.testing.assert_allclose(to_numpy(copy(arrays)), to_numpy(model(arrays)), atol=1e-4)
