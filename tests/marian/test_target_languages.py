"""Models with several target languages: the language is an argument, and is the tag that it was."""

import numpy as np
import pytest
import tensorflow as tf
from marian_models import TAGS, fixture, write_transformers_folder

from keras_tfmr import Translator
from keras_tfmr.errors import PresetError
from keras_tfmr.presets import marian
from training import translate

TEXTS = ["o gato preto", "a casa é grande"]


def translator_of(published):
    tokenizers = published.source_tokenizer, published.target_tokenizer
    return Translator(published.model, *tokenizers, published.decoding.replace(max_length=12))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_transformers_folder(tmp_path_factory.mktemp("models") / "opus", fixture()[1])


@pytest.fixture(scope="module")
def translator(folder):
    return translator_of(marian.read(folder))


def scores(translations):
    return [translation.score for translation in translations]


def test_a_language_is_the_tag_before_each_text(translator):
    assert translator.source_tokenizer.target_languages == ("eng", "fra")
    answers = {}
    for language, tag in zip(("eng", "fra"), TAGS, strict=True):
        tagged = [f"{tag} {text}" for text in TEXTS]
        answers[language] = translator.translate(TEXTS, language=language)
        assert answers[language] == translator.translate(tagged)
        np.testing.assert_allclose(
            scores(answers[language]), scores(translator.translate(tagged)), atol=1e-4
        )
        # A tag in a text goes before the language that was chosen.
        assert translator.into("eng").translate(tagged) == answers[language]
    assert not np.allclose(scores(answers["eng"]), scores(answers["fra"]), atol=1e-3)


def test_the_language_of_a_translator_is_that_of_all_calls_and_of_each_sentence(translator):
    into = translator.into("fra")
    assert into is translator.into("fra") and into.model is translator.model
    (document,) = into.translate_document(["O gato. A casa"])
    sources, found = zip(*document.pieces[::2], strict=True)
    assert sources == ("O gato.", "A casa")
    assert [*found] == into.translate([f"{TAGS[1]} {source}" for source in sources])
    exported = into.signatures["translate"](tf.constant(TEXTS))["translation"].numpy()
    assert [text.decode() for text in exported] == translator.translate(TEXTS, language="fra")


def test_a_translator_into_a_language_stays_one_when_it_is_saved(folder, tmp_path):
    into = Translator.from_preset(folder).into("fra")
    saved = Translator.from_preset(into.save_to_preset(tmp_path / "saved"))
    assert saved.translate(TEXTS) == into.translate(TEXTS)
    assert saved.record["config"]["published"]["target_language"] == "fra"


def test_lines_of_a_file_have_the_language_of_the_command(translator, folder, tmp_path, capsys):
    lines, output = tmp_path / "lines", tmp_path / "output"
    lines.write_text("".join(f"{text}\n" for text in TEXTS))
    command = [str(folder), "--input", str(lines), "--output", str(output), "--max_length", "12"]
    assert translate.main(command) == 1
    said = capsys.readouterr().err
    assert "several target languages: give --language, of eng, fra" in said
    assert translate.main([*command, "--language", "fra", "--overwrite"]) == 0
    expected = translator.translate(TEXTS, language="fra")
    assert output.read_text().splitlines() == [translate.flat(text) for text in expected]


def test_a_language_that_is_missing_or_unknown_is_an_error_with_those_that_there_are(
    translator, folder
):
    for call in (translator.translate, translator.translate_nbest, translator.translate_document):
        with pytest.raises(ValueError, match=r"a `language` of eng, fra\. .* 'a casa é grande'"):
            call([f"{TAGS[0]} o gato", TEXTS[1]])
    with pytest.raises(ValueError, match="language 'deu'; the model's are: eng, fra"):
        translator.translate(TEXTS, language="deu")
    with pytest.raises(PresetError, match="language 'deu'; the model's are: eng, fra"):
        marian.read(folder, weights=False, language="deu")
    assert marian.read(folder, weights=False, language="fra").target_language == "fra"


def test_a_model_with_one_target_language_has_none_to_choose(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for path in folder.iterdir():
        content = path.read_bytes()
        for tag, piece in zip(TAGS, ("\u2581one", "\u2581two"), strict=True):
            content = content.replace(f'"{tag}"'.encode(), f'"{piece}"'.encode())
        (other / path.name).write_bytes(content)
    translator = translator_of(marian.read(other))
    assert translator.translate(TEXTS) and translator.source_tokenizer.target_languages == ()
    with pytest.raises(ValueError, match="the model's are: none, the model has one"):
        translator.translate(TEXTS, language="eng")


def test_int8_sees_each_language(translator):
    """The texts that find the ranges of its products get the languages in turn."""
    tags, *_ = np.array(translator.examples(TEXTS)[0][0]).T
    expected = translator.source_tokenizer.encode(TAGS).flat_values.numpy()
    assert tags.tolist() == expected.tolist()
