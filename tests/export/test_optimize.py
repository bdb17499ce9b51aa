"""The copies that exports decode with have the outputs and searches of the models they are of."""

import contextlib
import dataclasses
import itertools

import formulas
import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_toys import assert_same, decode, hypotheses
from helpers import OPTIONS, flat_numpy, random_ids, randomize, to_numpy
from keras_tfmr.faster.decoder import FastModel
from keras_tfmr.faster.optimize import optimize_for_decoding, takes
from keras_tfmr.faster.precision import with_precision

from keras_tfmr.decoding import score, slots_due
from keras_tfmr.errors import ExportError
from keras_tfmr.export.other_engines import COMMON, check_architecture
from keras_tfmr.layers import MultiHeadAttention
from keras_tfmr.models import LanguageModel, SequenceClassifier, TransformerConfig, TranslationModel

TINY = TransformerConfig.preset(
    "tiny", source_vocab=20, target_vocab=20, encoder_layers=1, decoder_layers=1
)
KINDS = [(name, TranslationModel) for name in OPTIONS]
KINDS += [(name, LanguageModel) for name in ("paper", "modern", "alibi")]
START, END, SLOTS = 2, (3, 4), (17, 18, 19)


def inputs(kind):
    source, target = random_ids(3, 6, vocab=20), random_ids(3, 5, vocab=20, seed=1)
    source[1, 4:], target[1, 2:], source[2] = 0, 0, 0
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
        stepped = to_numpy(log_probs).reshape(3, 2, -1)
        real = targets[:, index] != 0
        whole = formulas.log_softmax(expected[:, index])[real, None]
        np.testing.assert_allclose(
            stepped[real], np.broadcast_to(whole, stepped[real].shape), atol=atol
        )


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_copy_has_the_same_outputs_for_every_block_and_option(name, kind):
    model = kind(TINY.replace(**OPTIONS[name] | {"value_dim": None}))
    randomize(model)
    copy = optimize_for_decoding(model)
    assert isinstance(copy, FastModel)
    before = to_numpy(model(inputs(kind)))
    check_same(model, copy, kind, atol=1e-4)
    if kind is TranslationModel:
        scores, expected = (flat_numpy(each.explain(*inputs(kind))[1]) for each in (copy, model))
        for one, other in zip(scores, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    randomize(model, seed=9)
    np.testing.assert_allclose(to_numpy(copy(inputs(kind))), before, atol=1e-4)


@dataclasses.dataclass(frozen=True)
class NewerConfig(TransformerConfig):
    """With an option that only the layers would know."""

    cap: float = 0.0


@pytest.mark.parametrize("cap", [0.0, 5.0])
def test_what_only_the_layers_know_is_neither_copied_nor_written(cap):
    model = TranslationModel(NewerConfig(**TINY.to_dict(), cap=cap))
    assert takes(model) == (not cap)
    with pytest.raises(ExportError, match="cap=5") if cap else contextlib.nullcontext():
        check_architecture(model, "Marian", COMMON)


def searched(model, beams):
    """The search as one function of its tensors, traced once for all shapes."""
    inputs = [tf.TensorSpec([None] * rank, tf.int32) for rank in (2, 1, 0)]

    def run(source, limits, num_certain):
        step, state = model.start(source, beams, max_length=12)
        return decode(
            step, state, bos_ids=tf.zeros_like(limits) + START, eos_id=END, num_beams=beams,
            num_return_sequences=beams, max_length=12, min_length=2, length_penalty=0.6,
            banned_ids=(1, START), max_lengths=limits, num_certain=num_certain,
            **slots_due(source, SLOTS, SLOTS),
        )  # fmt: skip

    return tf.function(run, inputs, autograph=False)


@pytest.mark.parametrize(
    "name, beams",
    [("paper", 1), ("logits of their own, pre-norm", 3), ("modern", 3), ("ssru", 3)],
)
def test_a_copy_finds_the_same_hypotheses_in_batches_that_shrink(name, beams):
    model = TranslationModel(TINY.replace(**OPTIONS[name]))
    randomize(model)
    run, run_copy = searched(model, beams), searched(optimize_for_decoding(model), beams)
    for rows, num_certain in ((0, 1), (1, beams), (64, 1), (64, beams)):
        lengths = np.arange(rows)[:, None] % 8  # some texts are empty
        source = random_ids(rows, 7, vocab=20) * (np.arange(7) < lengths)
        limits = np.arange(rows, dtype="int32") % 13
        source = source.astype("int32")
        given = source, limits, np.int32(num_certain)
        assert_same(run_copy(*given), run(*given), range(rows))


@pytest.mark.parametrize("scale", [1, 1000])
def test_logits_of_any_size_have_their_normaliser(scale):
    model = TranslationModel(TINY.replace(norm_first=True, tied_logits=False))
    randomize(model)
    kernel = model.logits.dense.kernel
    kernel.assign(scale * kernel)
    copy = optimize_for_decoding(model)
    assert copy.head.bounded == (scale == 1)
    check_same(model, copy, TranslationModel, atol=1e-4 * scale)


@pytest.mark.parametrize("fields", [dict(norm_first=True), dict(decoder_self="ssru")])
def test_a_wide_beam_is_exhaustive_search_by_full_passes(fields):
    config = TINY.replace(source_vocab=7, target_vocab=7, **fields)
    model, source = TranslationModel(config), random_ids(1, 6, vocab=7)
    randomize(model)
    step, state = optimize_for_decoding(model).start(source, 40, max_length=3)
    result = decode(
        step, state, bos_ids=[START], eos_id=3, num_beams=40, num_return_sequences=40, max_length=3,
        length_penalty=0.6, banned_ids=(1, START),
    )  # fmt: skip
    ways = [(*body, 3) for n in range(3) for body in itertools.product((4, 5, 6), repeat=n)]
    ways += itertools.product((4, 5, 6), repeat=3)
    target = np.array([[*way, 0, 0][:3] for way in ways])
    fed = np.insert(target, 0, START, axis=1)[:, :-1]
    log_prob, length = map(np.array, score(model([np.repeat(source, len(ways), 0), fed]), target))
    best = np.argsort(-log_prob / ((5 + length) / 6) ** 0.6)
    found = hypotheses(result, 0)[: len(ways)]
    assert [ids for ids, *_ in found] == [ways[i] for i in best]
    np.testing.assert_allclose([one[1] for one in found], log_prob[best], atol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_prompts_are_gone_on_with_as_by_the_model(beams):
    model = LanguageModel(TINY.replace(**OPTIONS["modern"]))
    randomize(model)
    prompts = np.array([[2, 4, 1, 4, 1], [2, 1, 1, 0, 0], [2, 2, 4, 4, 0]], "int32")
    options = dict(num_beams=beams, num_return_sequences=beams, eos_id=3, max_length=9)
    results = []
    for each in (model, optimize_for_decoding(model)):
        step, state, bos_ids, prefix = each.start_after(prompts, beams, max_length=9)
        results.append(decode(step, state, bos_ids=bos_ids, prefix=prefix, **options))
    assert_same(*results, range(3))


def test_a_copy_in_another_precision():
    model = TranslationModel(TINY)
    randomize(model)
    for made in (TranslationModel(TINY, dtype="bfloat16"), model):
        copy = optimize_for_decoding(made, "bfloat16")
        large = {weight.dtype for weight in copy.weights if len(weight.shape) == 2}
        assert large == {"bfloat16"} and copy.precision == "bfloat16"
    exact, rounded = (to_numpy(each(inputs(TranslationModel))) for each in (model, copy))
    assert np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()
    for each in (model, copy):
        with pytest.raises(ValueError, match="int3"):
            optimize_for_decoding(each, "int3")
    with pytest.raises(ValueError, match="stays in its precision, bfloat16"):
        with_precision(copy, "float32")


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


class Another(MultiHeadAttention):
    """A layer that may do anything."""


def with_a_layer_of_another_class(model):
    model.decoder.layers[0].self_attention.attention.__class__ = Another


def with_a_method_of_its_own(model):
    attention = model.decoder.layers[0].self_attention.attention
    attention.attend = lambda queries, *_, **__: (queries, None)


def with_values_of_another_width(model):
    model.decoder.layers[0].self_attention.attention.value_dim += 1


def without_padding(model):
    model.encoder.embedding.mask_zero = False


def quantized(model):
    model.quantize("int8")


CHANGES = [
    with_a_layer_of_another_class, with_a_method_of_its_own, with_values_of_another_width,
    without_padding, quantized,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_does_something_else_is_decoded_by_its_own_code(change):
    model = TranslationModel(TINY)
    assert takes(model)
    change(model)
    assert not takes(model) and optimize_for_decoding(model) is model


def test_a_subclass_and_other_models_are_left_as_they_are():
    class Mine(TranslationModel):
        pass

    classifier = SequenceClassifier(TINY, 3)
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for model in (other, classifier, Mine(TINY)):
        assert optimize_for_decoding(model) is model
        with pytest.raises(ValueError, match="int8 takes a TranslationModel or LanguageModel"):
            optimize_for_decoding(model, "int8")
    assert optimize_for_decoding(classifier, "bfloat16").dtype_policy.name == "bfloat16"
