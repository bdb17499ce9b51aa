"""Text models from presets, and back: what is written answers as what wrote it."""

import json
import re

import numpy as np
import pytest
from marian_models import write_published
from text_models import KINDS, LINES, Plain, classifier, tiny, tiny_translator, tokenizer, write_run

from keras_tfmr import Classifier, TranslationModel, Translator
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.export.calibration import texts_for
from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel
from keras_tfmr.text.sentences import LANGUAGES
from keras_tfmr.text_models.load import load_text_model

GREEDY = {"num_beams": 1, "num_return_sequences": 1}  # is traced in less time


def recurrent():
    size = tokenizer().vocab_size
    return tiny_translator(
        RNNSearchModel(RNNSearchConfig.preset("tiny", source_vocab=size, target_vocab=size)),
        **GREEDY,
    )


ANSWERS = {
    "classifier": lambda model: model.classify(LINES),
    "completer": lambda model: model.log_prob(LINES),
    "translator": lambda model: model.translate(LINES),
    "recurrent": lambda model: model.translate(LINES),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_saved_answers_as_before(name, tmp_path):
    model = {**KINDS, "recurrent": recurrent}[name]()
    model.texts = ["Uma frase.", "Outra\nfrase."]
    path = model.save_to_preset(tmp_path / "a preset")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a preset"]
    found = load_text_model(path)
    assert isinstance(model, type(found)) and found.texts == ["Uma frase.", "Outra frase."]
    assert ANSWERS[name](found) == ANSWERS[name](model)
    mine, its = ({n: v for n, v in m.arguments().items() if n in OWN} for m in (model, found))
    assert mine == its
    with pytest.raises(ExportError, match="is not empty"):
        classifier().save_to_preset(path)
    fresh = type(found).from_preset(path, load_weights=False)
    assert not np.allclose(fresh.model.get_weights()[0], model.model.get_weights()[0])


OWN = {"labels", "max_length", "max_new_tokens", "config", "max_source_length"}


def test_lora_and_another_precision_are_merged_and_rounded_back(tmp_path):
    translator = tiny_translator(**GREEDY)
    table = translator.model.encoder.embedding.tokens
    table.enable_lora(2)
    table.lora_embeddings_b.assign(np.ones(table.lora_embeddings_b.shape))
    found = Translator.from_preset(translator.save_to_preset(tmp_path / "lora"))
    assert found.translate(LINES) == translator.translate(LINES)
    rounded = tiny_translator().replace(precision="bfloat16")
    found = Translator.from_preset(rounded.save_to_preset(tmp_path / "rounded"))
    assert found.model.dtype_policy.name == "float32"
    for weight, other in zip(found.model.weights, rounded.model.weights, strict=True):
        np.testing.assert_array_equal(np.array(weight), np.array(other, "float32"))
    with pytest.raises(PresetError, match="Received: a FastTranslation"):
        tiny_translator().for_decoding().save_to_preset(tmp_path / "fast")


def test_a_run_folder_is_a_preset_with_options_in_its_place(tmp_path):
    run = write_run(tmp_path / "run", num_beams=3, data=["tfds:ted_hrlr_translate/pt_to_en"])
    rows = "".join(f"{line}\tx\n" for line in LINES)
    (run / "translations.tsv").write_text(f"source\treference\n{rows}", encoding="utf-8")
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
    other = tiny_translator(tiny(TranslationModel, seed=9)).model
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
    for file, contents in {
        "tokenizer.model": (b"", b"x", b'{"labels": 3}', b'{"labels"', b'{"labels": ["a", "b"]}'),
        "translations.tsv": (b"\xff\xfe", b"a\tb\nc\td\n"),
        "texts.txt": (b"\xff\xfe",),
        "results.json": (b"{",),
    }.items():
        before = (run / file).read_bytes() if (run / file).exists() else None
        for content in contents:
            (run / file).write_bytes(content)
            with pytest.raises(PresetError, match=re.escape(str(run)) + f".*{re.escape(file)}"):
                load_text_model(run)
        (run / file).unlink() if before is None else (run / file).write_bytes(before)
    weights = run / "weights" / "best.weights.h5"
    within = bytearray(weights.read_bytes())
    nodes = within.find(b"SNOD")  # of HDF5: the groups within the file
    within[nodes : nodes + 4] = b"xxxx"
    for damaged in (within, b"damaged"):
        weights.write_bytes(damaged)
        with pytest.raises(PresetError, match=r"best\.weights\.h5 does not fit the model"):
            Translator.from_preset(run)
    with pytest.raises(PresetError, match="Received: a Plain"):
        translator = tiny_translator()
        translator.model = type("Plain", (TranslationModel,), {})(translator.model.config)
        translator.save_to_preset(tmp_path / "own")
    assert not (tmp_path / "own").exists()


# (part of config.json, its entry, a wrong value, what is said of it)
WRONG = [
    ("model", None, [], "model must be an object"),
    ("arguments", None, "a", "arguments must be an object"),
    ("text_model", None, 3, "text_model must be an object"),
    ("model", "kind", "huge", "model.kind must be one of transformer, .*'huge'"),
    ("model", "kind", 7, "model.kind must be one of"),
    ("model", "config", {"d_model": "16"}, "d_model"),
    ("model", "config", {"no_such": 1}, "no_such"),
    ("model", "classes", 3, "classes"),
    ("arguments", "num_beams", 0, "num_beams"),
    ("arguments", "length_penalty", None, "length_penalty"),
    ("text_model", "beams", 2, "beams"),
    ("text_model", "protect", ["("], "protect"),
    ("text_model", "abbreviations", "xx", "abbreviations"),
]


def test_a_wrong_entry_of_a_config_is_named(tmp_path):
    path = tiny_translator(kind=Plain).save_to_preset(tmp_path / "preset")
    config = json.loads((path / "config.json").read_text())
    for part, entry, value, said in WRONG:
        changed = config[part] | {entry: value} if entry else value
        (path / "config.json").write_text(json.dumps(config | {part: changed}))
        with pytest.raises(PresetError, match=said) as raised:
            load_text_model(path, load_weights=False)
        assert str(path) in str(raised.value)


def test_a_published_model_is_saved_as_a_preset(tmp_path):
    path = write_published(tmp_path / "opus-mt-por-eng")
    found = load_text_model(path, language="eng", num_beams=2)
    assert type(found) is Translator and found.splitter.abbreviations == "pt", "by its name"
    assert found.config.num_beams == 2 and found.source_tokenizer.target_language == "eng"
    copy = Translator.from_preset(found.save_to_preset(tmp_path / "copy"))
    assert copy.config == found.config and copy.texts == []
    for side, its in found.tokenizers.items():
        assert copy.tokenizers[side].model_bytes == its.model_bytes
    for mine, its in zip(copy.model.weights, found.model.weights, strict=True):
        np.testing.assert_array_equal(np.array(mine), np.array(its))
    assert copy.record["config"]["published"]["target_language"] == "eng"
    with pytest.raises(PresetError, match="holds a Translator"):
        Classifier.from_preset(path)


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
    for options, said in (
        (
            {"format": "onnx"},
            "of 'saved_model', 'ctranslate2', 'transformers'. Received: 'onnx'",
        ),
        ({"format": "transformers", "precision": "int8"}, "precision has no effect on the format"),
    ):
        with pytest.raises(ValueError, match=said):
            unknown.export(tmp_path, **options)
    with pytest.raises(ExportError, match=r"needs a translator\. Received: a Classifier"):
        classifier().export(tmp_path, format="transformers")
    assert list(tmp_path.iterdir()) == []
