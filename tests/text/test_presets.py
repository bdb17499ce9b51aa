"""Text models from presets, and back: what is written answers as what wrote it."""

import json
import re

import numpy as np
import pytest
from marian_models import write_published
from own_models import of_ids
from text_models import KINDS, LINES, Plain, classifier, tiny, tiny_translator, tokenizer, write_run

from keras_tfmr import Classifier, Transformer, Translator
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.export.calibration import texts_for
from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel
from keras_tfmr.text.sentences import LANGUAGES
from keras_tfmr.text_models.load import load_text_model

GREEDY = {"num_beams": 1, "num_return_sequences": 1}  # is traced in less time


def recurrent():
    size = tokenizer().vocab_size
    config = RNNSearchConfig.preset("tiny", source_vocab=size, target_vocab=size)
    return tiny_translator(RNNSearchModel(config), **GREEDY)


def own():
    return tiny_translator(of_ids(tokenizer().vocab_size), kind=Plain, **GREEDY)


MODELS = {**KINDS, "recurrent": recurrent, "own": own}
ARGUMENTS = {"labels", "max_length", "max_new_tokens", "config", "max_source_length"}


def answers(model):
    if isinstance(model, Classifier):
        return model.classify(LINES)
    return model.translate(LINES) if isinstance(model, Translator) else model.log_prob(LINES)


@pytest.mark.parametrize(
    "name", [*KINDS, *(pytest.param(name, marks=pytest.mark.ci) for name in ("recurrent", "own"))]
)
def test_what_is_saved_answers_as_before(name, tmp_path):
    model = MODELS[name]()
    model.texts = ["Uma frase.", "Outra\nfrase."]
    path = model.save_to_preset(tmp_path / "a preset")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a preset"]
    found = load_text_model(path)
    assert isinstance(model, type(found)) and found.texts == ["Uma frase.", "Outra frase."]
    assert answers(found) == answers(model)
    for argument in ARGUMENTS & model.arguments().keys():
        assert found.arguments()[argument] == model.arguments()[argument]
    with pytest.raises(ExportError, match="is not empty"):
        classifier().save_to_preset(path)
    fresh = type(found).from_preset(path, load_weights=False)
    assert not np.allclose(fresh.model.get_weights()[0], model.model.get_weights()[0])


@pytest.mark.ci
def test_a_rounded_model_is_saved_in_float32(tmp_path):
    rounded = tiny_translator(kind=Plain).replace(precision="bfloat16")
    found = Translator.from_preset(rounded.save_to_preset(tmp_path / "rounded"))
    for weight, other in zip(found.model.weights, rounded.model.weights, strict=True):
        assert weight.dtype == "float32"
        np.testing.assert_array_equal(np.array(weight), np.array(other, "float32"))


def test_a_run_folder_is_a_preset_with_options_in_its_place(tmp_path):
    run = write_run(tmp_path / "run", num_beams=3, data=["tfds:ted_hrlr_translate/pt_to_en"])
    (run / "texts.txt").write_text("\n".join(LINES), encoding="utf-8")
    found = Translator.from_preset(run)
    assert (found.config.num_beams, found.config.num_return_sequences) == (3, 3)
    assert found.splitter.abbreviations == "pt"
    assert found.texts == texts_for(found, None) == list(LINES)
    given = Translator.from_preset(run, num_beams=1, max_source_length=9)
    assert (given.config.num_beams, given.config.num_return_sequences) == (1, 1)
    assert given.max_source_length == 9
    (tmp_path / "words").write_text("sr\nfig #\n", encoding="utf-8")
    given = Translator(given.model, **given.arguments() | {"abbreviations": tmp_path / "words"})
    given.record = found.record
    copy = Translator.from_preset(given.save_to_preset(tmp_path / "copy"), num_beams=2)
    assert copy.splitter.words == {"sr", "fig #"}
    assert copy.config == given.config.replace(num_beams=2, num_return_sequences=2)
    assert copy.record["config"]["arguments"]["data"] == ["tfds:ted_hrlr_translate/pt_to_en"]
    other = tiny(Transformer, seed=9)
    other.save_weights(tmp_path / "other.weights.h5")
    found = Translator.from_preset(run, load_weights=tmp_path / "other.weights.h5")
    np.testing.assert_array_equal(found.model.get_weights()[0], other.get_weights()[0])


def test_what_does_not_fit_is_one_line(tmp_path):
    run = write_run(tmp_path / "run")
    for ask, said in (
        (lambda: Classifier.from_preset(run), r"run holds a Translator: expected Translator\.from"),
        (lambda: Translator.from_preset(run, beams=2), "unexpected keyword argument 'beams'"),
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
        ("tokenizer.model", b"x"), ("tokenizer.model", b'{"labels": ["a", "b"]}'),
        ("results.json", b"{"), ("weights/best.weights.h5", b"damaged"),
    ):  # fmt: skip
        before = (run / file).read_bytes() if (run / file).exists() else b""
        (run / file).write_bytes(content)
        with pytest.raises(PresetError, match=f"{re.escape(str(run))}.*{re.escape(file)}"):
            load_text_model(run)
        (run / file).write_bytes(before)


# (part of config.json, its entry, a wrong value, what is said of it)
WRONG = [
    ("model", None, [], "is not the configuration"),
    ("arguments", None, "a", "is not the configuration"),
    ("model", "kind", "huge", "model.kind must be one of transformer, .*'huge'"),
    ("model", "config", {"d_model": "16"}, "d_model"),
    ("model", "config", {"no_such": 1}, "no_such"),
    ("arguments", "num_beams", 0, "num_beams"),
    ("arguments", "length_penalty", None, "length_penalty"),
    ("text_model", "protect", ["("], "protect"),
    ("text_model", "abbreviations", "xx", "abbreviations"),
]


@pytest.mark.ci
def test_a_wrong_entry_of_a_config_is_named(tmp_path):
    path = tiny_translator(kind=Plain).save_to_preset(tmp_path / "preset")
    config = json.loads((path / "config.json").read_text())
    for part, entry, value, said in WRONG:
        changed = config[part] | {entry: value} if entry else value
        (path / "config.json").write_text(json.dumps(config | {part: changed}))
        with pytest.raises(PresetError, match=said) as raised:
            load_text_model(path, load_weights=False)
        assert str(path) in str(raised.value)


@pytest.mark.ci
def test_a_published_model_is_a_preset_of_a_translator(tmp_path):
    path = write_published(tmp_path / "opus-mt-por-eng")
    found = load_text_model(path, language="eng", num_beams=2)
    assert type(found) is Translator and found.splitter.abbreviations == "pt", "by its name"
    assert found.config.num_beams == 2 and found.source_tokenizer.target_language == "eng"
    with pytest.raises(PresetError, match="holds a Translator"):
        Classifier.from_preset(path)


@pytest.mark.ci
def test_int8_is_calibrated_on_texts_in_the_language_of_the_model(tmp_path):
    model = tiny_translator().model
    for language in LANGUAGES:
        translator = Translator(model, tokenizer(), abbreviations=language)
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
    with pytest.raises(ExportError, match=r"needs a translator\. Received: a Classifier"):
        classifier().export(tmp_path, format="transformers")
    assert list(tmp_path.iterdir()) == []
