"""Text models from presets, and back: what is written answers as what wrote it."""

import functools
import json
import re

import keras
import numpy as np
import pytest
from marian_models import write_published
from own_models import of_ids
from text_models import (
    KINDS,
    LABELS,
    LINES,
    Plain,
    classifier,
    tiny_translator,
    tokenizer,
    write_run,
)

from keras_tfmr import Classifier, Translator
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.export.calibration import texts_for
from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel
from keras_tfmr.text.sentences import LANGUAGES
from keras_tfmr.text.spans import SLOTS
from keras_tfmr.text_models.load import load_text_model

GREEDY = {"num_beams": 1, "num_return_sequences": 1}  # is traced in less time


def recurrent():
    size = tokenizer().vocab_size
    config = RNNSearchConfig.preset("tiny", source_vocab=size, target_vocab=size)
    return tiny_translator(RNNSearchModel(config, name="a_name"), **GREEDY)


def own():
    return tiny_translator(of_ids(tokenizer().vocab_size), kind=Plain, **GREEDY)


def of_keras():
    """A classifier of Keras's own model class, which has no config."""
    ready = classifier().model
    x = keras.layers.Dense(len(LABELS))(ready.get_layer("mean").output)
    return Classifier(keras.Model(ready.inputs, x, name="a_name"), tokenizer(), LABELS)


CI = {"recurrent": recurrent, "own": own, "of Keras": of_keras}
MODELS = {**KINDS, "translator": lambda: tiny_translator(kind=Plain, **GREEDY), **CI}


def answers(model):
    if isinstance(model, Classifier):
        return model.classify(LINES)
    return model.translate(LINES) if isinstance(model, Translator) else model.log_prob(LINES)


@pytest.mark.parametrize(
    "name", [*KINDS, *(pytest.param(name, marks=pytest.mark.ci) for name in CI)]
)
def test_what_is_saved_answers_as_before(name, tmp_path):
    model = MODELS[name]()
    model.texts = ["Uma frase.", "Outra\nfrase."]
    path = model.save_to_preset(tmp_path / "a preset")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a preset"]
    found = load_text_model(path)
    assert found.texts == ["Uma frase.", "Outra frase."]
    assert answers(found) == answers(model)
    assert type(found) is type(model) and found.get_config() == model.get_config()
    assert type(found.model) is type(model.model) and found.model.name == model.model.name
    with pytest.raises(ExportError, match="is not empty"):
        model.save_to_preset(path)


@pytest.mark.ci
def test_a_rounded_model_is_saved_in_float32(tmp_path):
    rounded = tiny_translator(kind=Plain).replace(precision="bfloat16")
    found = Translator.from_preset(rounded.save_to_preset(tmp_path / "rounded"))
    for weight, other in zip(found.model.weights, rounded.model.weights, strict=True):
        assert weight.dtype == "float32"
        np.testing.assert_array_equal(np.array(weight), np.array(other, "float32"))


def test_a_run_folder_is_a_preset_with_options_in_its_place(tmp_path):
    options = {"num_beams": 3, "languages": ["por", "en"], "protect": ["code"]}
    run = write_run(tmp_path / "run", SLOTS, arguments={"data": ["a.tsv"]}, **options)
    (run / "texts.txt").write_text("\n".join(LINES), encoding="utf-8")
    found = Translator.from_preset(run)
    assert (found.config.num_beams, found.config.num_return_sequences) == (3, 3)
    assert (found.languages, found.splitter.abbreviations) == (("por", "en"), "pt")
    assert found.texts == texts_for(found, None) == list(LINES)
    given = Translator.from_preset(run, num_beams=1, max_source_length=9)
    assert (given.config.num_beams, given.config.num_return_sequences) == (1, 1)
    assert given.max_source_length == 9
    (tmp_path / "words").write_text("sr\nfig #\n", encoding="utf-8")
    given = given.replace(abbreviations=tmp_path / "words")
    copy = Translator.from_preset(given.save_to_preset(tmp_path / "copy"), num_beams=2)
    assert copy.splitter.words == {"sr", "fig #"} and copy.get_config()["protect"] == ("code",)
    assert copy.config == given.config.replace(num_beams=2, num_return_sequences=2)
    assert copy.record["config"]["arguments"]["data"] == ["a.tsv"]
    other = Translator.from_preset(run, load_weights=False).model
    assert not np.allclose(other.get_weights()[0], found.model.get_weights()[0])
    other.save_weights(tmp_path / "other.weights.h5")
    found = Translator.from_preset(run, load_weights=tmp_path / "other.weights.h5")
    np.testing.assert_array_equal(found.model.get_weights()[0], other.get_weights()[0])


def test_what_does_not_fit_is_one_line(tmp_path):
    run = write_run(tmp_path / "run")
    for ask, said in (
        (lambda: Classifier.from_preset(run), r"run holds a Translator: expected Translator\.from"),
        (
            lambda: Translator.from_preset(run, beams=2),
            r"of a Translator: \['beams'\]\. Exp.*'num_beams'",
        ),
        (lambda: Translator.from_preset(run, language="de"), "unknown target language 'de'"),
        (lambda: Translator.from_preset("some/run"), "some/run; a model of the Hugging .*hf://OWN"),
        (lambda: Translator.from_preset("hf://name"), "expected hf://OWNER/NAME or .*hf://name"),
        (lambda: Translator.from_preset(tmp_path), r"Cannot read .*config\.json"),
        (lambda: Translator.from_preset(run / "tokenizer.model"), "there is no folder"),
    ):
        with pytest.raises(PresetError, match=said) as raised:
            ask()
        assert "\n" not in str(raised.value)
    for file, content in (
        ("tokenizer.model", b"x"),
        ("results.json", b"{"), ("weights/best.weights.h5", b"damaged"),
    ):  # fmt: skip
        before = (run / file).read_bytes() if (run / file).exists() else b""
        (run / file).write_bytes(content)
        with pytest.raises(PresetError, match=f"{re.escape(str(run))}.*{re.escape(file)}"):
            load_text_model(run)
        (run / file).write_bytes(before)


# (place in config.json, a wrong value, what is said of it)
WRONG = [
    ("model", [], "expected the entries text_model, .* found no model.*earlier versions"),
    ("text_model.class_name", "keras_tfmr>Transltor", "text_model: .*'keras_tfmr>Transltor'.*Cla"),
    ("text_model.config.beams", 2, r"of a Plain: \['beams'\]\. Expected some of: .*'num_beams'"),
    ("text_model.config.num_beams", 0, "num_beams"),
    ("text_model.config.length_penalty", None, "length_penalty"),
    ("model.made_by", "keras_tfmr>Huge", "model: unknown made_by 'keras_tfmr>Huge'. Expected"),
    ("model.made_by", "keras_tfmr>Encoder", "model: unknown made_by"),
    ("model.config.no_such", 1, r"model: Unknown fields of a TransformerConfig: \['no_such'\]"),
    ("model.num_classes", 3, "num_classes"),
    ("tokenizers.source.class_name", "x", "tokenizers.source: .*'x'.*keras_tfmr>SubwordTokeni"),
    ("tokenizers.target", 1, "tokenizers.target: unknown class_name None"),
    ("tokenizers.source.file", "none.model", "lacks a file of its tokenizers"),
]


def test_a_wrong_entry_of_a_config_is_named(tmp_path):
    path = tiny_translator(kind=Plain).save_to_preset(tmp_path / "preset")
    text = (path / "config.json").read_text()
    for place, value, said in WRONG:
        config = json.loads(text)
        *parts, last = place.split(".")
        functools.reduce(dict.get, parts, config)[last] = value
        (path / "config.json").write_text(json.dumps(config))
        with pytest.raises(PresetError, match=said) as raised:
            load_text_model(path, load_weights=False)
        assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_a_class_that_a_preset_cannot_name_is_refused(tmp_path):
    class Own(Plain):
        pass

    model = tiny_translator(kind=Plain)
    with pytest.raises(PresetError, match=r"Own needs a name .*register_keras_serializable"):
        tiny_translator(model.model, kind=Own).save_to_preset(tmp_path / "preset")
    with pytest.raises(PresetError, match=r"nor made for decoding.*in float32"):
        model.for_decoding().save_to_preset(tmp_path / "preset")
    assert not any(tmp_path.iterdir())


@pytest.mark.ci
def test_a_published_model_is_a_preset_of_a_translator(tmp_path):
    path = write_published(tmp_path / "opus")
    (path / "tokenizer_config.json").write_text('{"source_lang": "por", "target_lang": "mul"}')
    assert load_text_model(path).languages == ("por", "mul")
    found = load_text_model(path, language="eng", num_beams=2)
    assert type(found) is Translator and found.languages == ("por", "eng")
    assert found.splitter.abbreviations == "pt"
    assert found.config.num_beams == 2 and found.source_tokenizer.target_language == "eng"
    with pytest.raises(PresetError, match="holds a Translator"):
        Classifier.from_preset(path)


@pytest.mark.ci
def test_int8_is_calibrated_on_texts_in_the_language_of_the_model(tmp_path):
    model = tiny_translator().model
    for language in LANGUAGES:
        translator = Translator(model, tokenizer(), languages=(language, ""))
        texts = texts_for(translator, None)
        assert len({*texts}) == len(texts) >= 16
        assert texts_for(translator, LINES) == list(LINES)
    unknown = Translator(model, tokenizer())
    with pytest.raises(ValueError, match=r"int8 needs texts in the model's .*--calib"):
        unknown.export(tmp_path, precision="int8")
    with pytest.raises(ValueError, match=r"of 'saved_model', 'ctranslate2', .* Received: 'onnx'"):
        unknown.export(tmp_path, format="onnx")
    with pytest.raises(ValueError, match="precision has no effect on the format"):
        unknown.export(tmp_path, format="transformers", precision="int8")
    with pytest.raises(ValueError, match=r"for a Classifier\. Received: 'transformers'"):
        classifier().export(tmp_path, format="transformers")
    assert list(tmp_path.iterdir()) == []
