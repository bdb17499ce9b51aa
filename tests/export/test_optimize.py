"""The copies that exports decode with have the outputs of the models they were made from."""

import formulas
import keras
import numpy as np
import pytest
from helpers import OPTIONS, random_ids, randomize, to_numpy

from keras_tfmr.faster.optimize import FusedSelfAttention, FusedSSRU, optimize_for_decoding
from keras_tfmr.faster.precision import with_precision
from keras_tfmr.layers import MultiHeadAttention
from keras_tfmr.models import LanguageModel, SequenceClassifier, TransformerConfig, TranslationModel

TINY = TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)
KINDS = [(name, TranslationModel) for name in OPTIONS]
KINDS += [(name, LanguageModel) for name in ("paper", "modern", "alibi")]


def inputs(kind):
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)
    source[1, 4:], target[1, 2:] = 0, 0
    return [source, target] if kind is TranslationModel else source


def check_same(model, copy, kind, atol):
    """The whole pass and the steps of the copy give what the model gives."""
    arrays = inputs(kind)
    expected = to_numpy(model(arrays))
    np.testing.assert_allclose(to_numpy(copy(arrays)), expected, atol=atol)
    rows = 3 if kind is LanguageModel else arrays[0]
    targets = arrays if kind is LanguageModel else arrays[1]
    step, state = copy.start(rows, num_beams=2, max_length=5)
    for index in range(4):
        log_probs, state = step.next(np.repeat(targets[:, index], 2), state)
        found = to_numpy(log_probs).reshape(3, 2, -1)
        real = targets[:, index] != 0
        wanted = formulas.log_softmax(expected[:, index])[real, None]
        np.testing.assert_allclose(
            found[real], np.broadcast_to(wanted, found[real].shape), atol=atol
        )


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_copy_has_the_same_outputs_for_every_block_and_option(name, kind):
    config = TINY.replace(**OPTIONS[name])
    model = kind(config)
    randomize(model)
    copy = optimize_for_decoding(model)
    assert model.config == config and not copy.config.tied_logits
    [layer] = copy.decoder.layers
    sublayer = getattr(layer, "ssru", None) or layer.self_attention.attention
    assert type(sublayer) is (FusedSSRU if config.decoder_self == "ssru" else FusedSelfAttention)
    before = to_numpy(model(inputs(kind)))
    check_same(model, copy, kind, atol=1e-4)
    randomize(model, seed=9)
    np.testing.assert_allclose(to_numpy(copy(inputs(kind))), before, atol=1e-4)


def test_a_copy_in_another_precision():
    model = TranslationModel(TINY)
    randomize(model)
    for made in (TranslationModel(TINY, dtype="bfloat16"), model):
        copy = optimize_for_decoding(made, "bfloat16")
        assert {weight.dtype for weight in copy.weights} == {"bfloat16"}
    expected, found = (to_numpy(each(inputs(TranslationModel))) for each in (model, copy))
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    with pytest.raises(ValueError, match="int3"):
        optimize_for_decoding(model, "int3")


@pytest.mark.parametrize("kind", [TranslationModel, LanguageModel])
def test_lora_is_merged(kind):
    model = kind(TINY)
    randomize(model)
    plain = to_numpy(model(inputs(kind)))
    dense = [one for one in model._flatten_layers() if isinstance(one, keras.layers.Dense)]
    for layer in [*dense, model.decoder.embedding.tokens]:
        layer.enable_lora(4)
    randomize(model, seed=3)
    tuned = to_numpy(model(inputs(kind)))
    assert np.abs(tuned - plain).max() > 0.1, "LoRA does nothing"
    scale = np.abs(tuned).max()
    check_same(model, optimize_for_decoding(model), kind, atol=1e-5 * scale)
    narrow = to_numpy(with_precision(model, "bfloat16")(inputs(kind)))
    assert np.abs(narrow - tuned).max() < 0.1 * scale


def test_what_its_config_does_not_describe_is_left_as_it_is():
    class Another(MultiHeadAttention):
        pass

    changed = TranslationModel(TINY)
    changed.decoder.layers[0].self_attention.attention.__class__ = Another
    assert optimize_for_decoding(changed) is changed
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    classifier = SequenceClassifier(TINY, 3)
    quantized = TranslationModel(TINY)
    quantized.quantize("int8")
    for model in (other, classifier, quantized):
        assert optimize_for_decoding(model) is model
    narrow = optimize_for_decoding(classifier, "bfloat16")
    assert narrow.dtype_policy.name == "bfloat16"
