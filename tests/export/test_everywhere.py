"""Every layer, option and field, wherever a model goes: in configs, files, clones, copies, exports.

Each gives equal outputs there, or an error that names it. The models are those of
everywhere_models.py.
"""

import dataclasses
import inspect

import keras
import numpy as np
import pytest
from everywhere_models import (
    BASE,
    INSIDE,
    MAKERS,
    NEEDED,
    OTHERS,
    PLACED,
    SIZE,
    config_of,
    model_of,
    options_of,
)
from formulas import log_softmax
from fresh_process import weights_of
from helpers import OPTIONS, flat_numpy, randomize
from own_models import check_same, inputs, logits_of, outputs_of, source_of
from text_models import LINES, Plain, tokenizer

from keras_tfmr import TransformerConfig, Translator, layers, recurrent
from keras_tfmr.compat import flatten_layers
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.finished import optimize_for_decoding
from keras_tfmr.models import LanguageModel, Transformer, TranslationModel
from keras_tfmr.precision import copy_of, precision_of, with_precision
from keras_tfmr.text_models.text_model import shifted

PUBLIC = {
    each
    for module in (layers, recurrent)
    for each in map(vars(module).get, module.__all__)
    if isinstance(each, type)
    and issubclass(each, keras.layers.Layer)
    and not issubclass(each, keras.Model)
}


@pytest.mark.parametrize("cls", sorted(PUBLIC, key=lambda cls: cls.__name__))
def test_a_config_states_every_option(cls):
    needed = {
        name: NEEDED[name] for name in NEEDED if name in inspect.signature(cls.__init__).parameters
    }
    base, options = cls(**needed, name="layer").get_config(), options_of(cls)
    for names in (options - {"use_bias"}, options & {"use_bias"}):  # and no option of biases
        config = cls(**needed | {name: OTHERS[name] for name in names}).get_config()
        assert cls.from_config(config).get_config() == config
        assert not [name for name in names if config[name] == base.get(name)]


def test_every_layer_and_field_is_in_a_model():
    assert PLACED | INSIDE == PUBLIC and not PLACED & INSIDE
    for field in dataclasses.fields(TransformerConfig):
        values = {getattr(config_of(name), field.name) for name in OPTIONS}
        assert values - {getattr(BASE, field.name)}, field.name


# The others are left to .ci/run.
OFTEN = (
    "recurrent layers", "changed", "frozen, of Keras", "modern", "alibi, a language model",
    "parts", "rnnsearch",
)  # fmt: skip
EACH = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.ci) for name in MAKERS]


def cloned(model, folder):
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


def copied(model, folder):
    return copy_of(model, "float32", merge_lora=False)


def from_preset(model, folder):
    return Translator.from_preset(translator_of(model).save_to_preset(folder / "preset")).model


def translator_of(model):
    return Plain(model, tokenizer(), max_source_length=64, languages=("pt", "en"))


def losses_of(model):
    """The sum of those that regularizers add."""
    outputs_of(model, inputs(model))
    return np.sum(flat_numpy(model.losses))


def check_weights(found, expected):
    """The same names, dtypes, values, and the same of them are trained."""
    assert [each[:3] for each in found] == [each[:3] for each in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[3], other[3])


def check_outputs(found, expected, tolerance=1e-5):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", EACH)
def test_a_model_is_the_same_everywhere(name, fresh, tmp_path):
    """In its file as another process reads it, as a clone and as a copy; as a preset if it can."""
    model = model_of(name)
    arrays = inputs(model)
    expected, weights = outputs_of(model, arrays), weights_of(model)
    tolerance = 1e-5 if precision_of(model) == "float32" else 2e-2
    model.save(tmp_path / "model.keras")
    found, of_file = fresh(tmp_path / "model.keras", arrays)
    check_outputs(found, expected, tolerance)
    check_weights(of_file, weights)
    ways = [cloned]
    if precision_of(model) == "float32":
        ways.append(copied)
        if isinstance(model, TranslationModel) and model.vocab_size >= SIZE:
            ways.append(from_preset)
    for way in ways:
        other = way(model, tmp_path)
        check_outputs(outputs_of(other, arrays), expected, tolerance)
        check_weights(weights_of(other), weights)
        np.testing.assert_allclose(losses_of(other), losses_of(model), rtol=1e-5)
        if way is not cloned:  # Keras gives a clone no config
            assert getattr(other, "config", None) == getattr(model, "config", None)
        if way is not cloned or isinstance(model, (TranslationModel, LanguageModel)):
            assert type(other) is type(model)
    if isinstance(model, (TranslationModel, LanguageModel)) and precision_of(model) == "float32":
        check_narrow(with_precision(model, "bfloat16"), arrays, expected)
        check_finished(model, arrays)


def check_narrow(model, arrays, expected):
    """A model in bfloat16, LoRA merged, has about the same outputs."""
    assert {weight.dtype for weight in model.weights} == {"bfloat16"}
    assert not any(getattr(layer, "lora_enabled", False) for layer in flatten_layers(model))
    for one, other in zip(outputs_of(model, arrays), expected, strict=True):
        assert np.abs(one - other).std() < 0.1 * other.std()


def check_finished(model, arrays):
    """A finished model decodes the same, and keeps its outputs whatever becomes of the model."""
    expected, finished = logits_of(model, arrays), optimize_for_decoding(model)
    assert type(finished) is type(model) and finished.precision == "float32"
    check_same(model, finished, atol=1e-4 * max(1, np.abs(expected).max()))
    if isinstance(model, TranslationModel):
        explained = source_of(model), arrays[model.target_place]
        scores = [flat_numpy(each.explain(*explained)[1]) for each in (finished, model)]
        check_outputs(*scores, tolerance=1e-4)
    randomize(model, seed=9)
    check_outputs([logits_of(finished, arrays)], [expected], tolerance=1e-4)


EXPORTED = "other sizes", "two vocabularies, tied with a bias", "modern"


def exported(name, folder, format):
    """A translator with those of the fields that a format has a counterpart of, and its export.

    The others are refused by name.
    """
    config, fields = config_of(name), {*OPTIONS[name]}
    while True:
        model = Transformer(config)
        randomize(model)
        translator = translator_of(model)
        try:
            return translator, translator.export(folder, format=format)
        except ExportError as error:
            named = [field for field in fields if f"{field}=" in str(error)]
            assert named, error
            fields.remove(named[0])
            config = config.replace(**{named[0]: getattr(BASE, named[0])})


def ids():
    """Of texts and of texts as their translations, each with its end id."""
    return [
        tokenizer().encode_truncated(lines, 64)[0].numpy() for lines in (LINES[:3], LINES[3:])
    ]  # fmt: skip


def logits(model):
    """Those of the tokens of the translations."""
    source, target = ids()
    return np.asarray(model([source, shifted(target, tokenizer().bos_id)]))[target != 0]


def check_marian(path, expected):
    """The logits of a MarianMTModel, as read from its folder, which gives `<s>` a second id, 4.

    Padding, the unknown and the start id are banned in it.
    """
    source, target = (each + (each > 3) for each in ids())
    read = Translator.from_preset(path)
    assert read.languages == ("pt", "en")
    found = np.asarray(read.model([source, shifted(target, tokenizer().bos_id)]))[target != 0]
    found = np.delete(found, 4, axis=1)
    np.testing.assert_allclose(found[:, 3:], expected[:, 3:], atol=1e-3)


@pytest.mark.ci
@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("name", EXPORTED)
def test_ctranslate2_computes_the_same_or_its_export_names_the_field(name, tmp_path):
    import ctranslate2

    translator, path = exported(name, tmp_path / "exported", "ctranslate2")
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    sides = [tokenizer().pieces(side).numpy() for side in ids()]
    pieces = [[[p.decode() for p in row if p][:-1] for row in side] for side in sides]
    found = [log_prob for scored in engine.score_batch(*pieces) for log_prob in scored.log_probs]
    target = ids()[1]
    log_probs = log_softmax(logits(translator.model))
    expected = log_probs[np.arange(len(log_probs)), target[target != 0]]
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.ci
@pytest.mark.parametrize("name", EXPORTED)
def test_a_marian_mt_model_computes_the_same_or_its_export_names_the_field(name, tmp_path):
    """`test_other_formats.py` has transformers itself read such folders."""
    translator, path = exported(name, tmp_path / "exported", "transformers")
    check_marian(path, logits(translator.model))


def test_what_a_config_does_not_say_is_exported_too(tmp_path):
    model = model_of("LoRA")
    path = translator_of(model).export(tmp_path / "exported", format="transformers")
    check_marian(path, logits(model))


@pytest.mark.parametrize(
    "name, why",
    [
        ("two sides", r"needs a model that Transformer\(config\) made"),
        ("quantised", "needs weights that are not quantised"),
    ],
)
def test_what_other_engines_cannot_hold_is_refused(name, why, tmp_path):
    translator = translator_of(model_of(name))
    for format in ("transformers", "ctranslate2"):
        with pytest.raises(ExportError, match=why):
            translator.export(tmp_path / "exported", format=format)
    if name == "quantised":
        with pytest.raises(PresetError, match="neither quantised nor"):
            translator.save_to_preset(tmp_path / "preset")
    assert not any(tmp_path.iterdir())
