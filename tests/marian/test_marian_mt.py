"""Published MarianMT models: read, they compute what transformers computes with them."""

import json

import numpy as np
import pytest
import tensorflow as tf
from marian_models import TAGS, VOCAB, write_published

from keras_tfmr import Translator
from keras_tfmr.errors import PresetError
from keras_tfmr.presets.folder import PresetFolder
from training import import_marian, phrasebook, translate

TEXTS = ["o gato preto", "a casa é grande"]
APART = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("models") / "opus-mt-pt-en")


@pytest.fixture(scope="module")
def translator(folder):
    return Translator.from_preset(folder, num_beams=1)


@pytest.mark.needs("torch", "transformers")
@pytest.mark.parametrize("tying", [{}, APART], ids=["shared tables", "tables apart"])
def test_logits_and_translations_are_those_of_transformers(tying, tmp_path):
    import torch
    import transformers

    path = write_published(tmp_path / "opus-mt-pt-en", config=tying, generation={"num_beams": 1})
    texts = [f"{tag} {text}" for tag in TAGS for text, _ in phrasebook.pairs(12)]
    model = transformers.MarianMTModel.from_pretrained(path).eval().double()
    inputs = transformers.MarianTokenizer.from_pretrained(path)(
        texts, return_tensors="pt", padding=True
    )
    with torch.inference_mode():
        theirs = model.generate(**inputs).numpy()  # padding, with which they begin, then ids
        fed = torch.tensor(theirs[:, :-1])
        logits = model(**inputs, decoder_input_ids=fed).logits.numpy()

    translator = Translator.from_preset(path)
    # Our ids: padding, unknown, start and end, then the others in their order.
    ours = np.array([3, 1, *range(4, VOCAB + 1), 0])
    source = translator.source_tokenizer.encode_truncated(texts, 64)[0].numpy()
    np.testing.assert_array_equal(source, ours[inputs["input_ids"].numpy()])
    found = translator.model([source, np.where(theirs == VOCAB - 1, 2, ours[theirs])[:, :-1]])
    # Padding behind an end is read as the start here; only the rows before it are compared.
    before = (theirs[:, :-1] != VOCAB - 1) | (np.arange(theirs.shape[1] - 1) == 0)
    np.testing.assert_allclose(
        found.numpy()[before][:, ours[:-1]], logits[before][:, :-1], atol=1e-3
    )
    pieces = translator.target_tokenizer.pieces(ours[theirs[:, 1:]]).numpy().tolist()
    expected = [[piece.decode() for piece in row if piece] for row in pieces]
    assert [one.target_tokens for one in translator.explain(texts)] == expected
    assert len({*map(tuple, expected)}) > len(texts) / 4


# (what differs in config.json, what is said of it)
OTHERS = [
    ({"model_type": "bart"}, "model_type='bart'; only 'marian' is supported"),
    ({"normalize_before": True}, "normalize_before=True; only False"),
    ({"static_position_embeddings": False}, "static_position_embeddings=False; only True"),
    ({"activation_function": "tanh"}, "activation_function='tanh'; supported are relu, swish"),
    ({"decoder_ffn_dim": 96}, "encoder_ffn_dim=48 and decoder_ffn_dim=96; only one number"),
    ({"decoder_layers": "2"}, "decoder_layers.* Received: .*2"),
    (
        {"encoder_attention_heads": 5, "decoder_attention_heads": 5},
        "must divide `d_model`.*num_heads=5",
    ),
    ({"vocab_size": 99}, r"vocab\.json has the id 299, the model 99 embeddings"),
    ({"encoder_layers": 1}, r"has model\.encoder\.layers\.1.*, which no MarianMTModel has"),
    ({"encoder_layers": 3}, r"has no model\.encoder\.layers\.2\.self_attn\.q_proj\.weight"),
    ({"d_model": 48}, r"model\.shared\.weight has shape \[300, 24\]; the config's is \[300, 48\]"),
]


@pytest.mark.parametrize(("config", "said"), OTHERS, ids=lambda each: str(each)[:40])
def test_another_architecture_is_named(config, said, tmp_path):
    path = write_published(tmp_path / "opus", config=config)
    with pytest.raises(PresetError, match=said):
        Translator.from_preset(path)


def test_missing_and_damaged_files_are_named(tmp_path):
    def check(said, **options):
        with pytest.raises(PresetError, match=said):
            Translator.from_preset(path, **options)

    path = write_published(tmp_path / "opus")
    check("a published model has no other weights", load_weights="other.weights.h5")
    (path / "model.safetensors").write_bytes(b"damaged")
    assert Translator.from_preset(path, load_weights=False)
    check(r"cannot read model\.safetensors")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    check(r"expected a file model\.safetensors; pytorch_model\.bin is a pickle")
    for name, content, said in (
        ("target.spm", b"damaged", r"cannot read target\.spm: not a SentencePiece model"),
        ("vocab.json", b'{"a": 2}', r"vocab\.json has no piece </s>"),
        ("generation_config.json", b'{"num_beams": 0}', "num_beams"),
        ("config.json", b'["model_type"]', r"config\.json: expected an object"),
    ):
        (path / name).write_bytes(content)
        check(said)


@pytest.mark.ci
def test_the_command_writes_a_run_that_translates(translator, tmp_path, capsys):
    path = write_published(tmp_path / "opus-mt-pt-en", generation={"no_repeat_ngram_size": 3})
    run, stated = tmp_path / "run", path / "tokenizer_config.json"
    stated.write_text('{"source_lang": "pob", "target_lang": "eng"}')
    command = [str(path), "--output", str(run), "--language"]
    assert import_marian.main([*command, "deu"]) == 1
    assert "unknown target language 'deu'; the model's are: eng, fra" in capsys.readouterr().err
    assert import_marian.main([*command, "fra", "--overwrite"]) == 0
    assert "note: no_repeat_ngram_size: 3 has no effect here" in capsys.readouterr().out
    config = json.loads((run / "config.json").read_text())
    assert config["text_model"]["config"] == {
        "num_beams": 4, "length_penalty": 1.0, "length_penalty_offset": 0.0, "max_length": 14,
        "min_length": 0, "max_length_ratio": 3.0, "max_length_extra": 8, "max_source_length": 128,
        "languages": ["pob", "fra"], "abbreviations": None, "protect": None,
    }  # fmt: skip
    assert config["tokenizers"]["source"]["config"] == {"language": "fra"}
    assert config["published"] == {
        "name": "opus-mt-pt-en", "notes": ["no_repeat_ngram_size: 3 has no effect here"]
    }  # fmt: skip
    assert "CC BY 4.0" in (run / "report.md").read_text()
    source, target = PresetFolder(run).tokenizers()
    assert source.encode(["o gato"]).to_list()[0][0] == source.encode([">>fra<<"]).to_list()[0][0]
    assert target.encode([">>fra<< a"]).to_list() != target.encode(["a"]).to_list()
    again = Translator.from_preset(run, num_beams=1)
    assert again.translate(TEXTS) == translator.translate(TEXTS, language="fra")


@pytest.mark.ci
def test_the_target_language_is_a_tag_before_each_text(translator, tmp_path):
    assert translator.source_tokenizer.target_languages == ("eng", "fra")
    answers = {}
    for language, tag in zip(("eng", "fra"), TAGS, strict=True):
        tagged = [f"{tag} {text}" for text in TEXTS]
        answers[language] = translator.translate(TEXTS, language=language)
        assert answers[language] == translator.translate(tagged)
        # A tag in a text goes before the language that was chosen.
        assert translator.into("eng").translate(tagged) == answers[language]
    scores = [[one.score for one in answers[language]] for language in ("eng", "fra")]
    assert not np.allclose(*scores, atol=1e-3)
    into = translator.into("fra")
    assert into is translator.into("fra") and into.model is translator.model
    (document,) = into.translate_document(["O gato. A casa"])
    sources, found = zip(*document.pieces[::2], strict=True)
    assert [*found] == into.translate([f"{TAGS[1]} {source}" for source in sources])
    served = into.signatures["translate"](tf.constant(TEXTS))["translation"].numpy()
    assert [text.decode() for text in served] == answers["fra"]
    saved = Translator.from_preset(into.save_to_preset(tmp_path / "saved"))
    assert saved.source_tokenizer.target_language == "fra"
    assert saved.languages == ("", "fra")
    # The texts that find the ranges of int8 get the languages in turn.
    tags, *_ = np.array(translator.calibration_inputs(TEXTS)[0][0]).T
    assert tags.tolist() == translator.source_tokenizer.encode(TAGS).flat_values.numpy().tolist()


@pytest.mark.ci
def test_a_language_that_is_missing_or_unknown_is_an_error_with_those_that_there_are(
    translator, folder, tmp_path, capsys
):
    for call in (translator.translate, translator.translate_nbest, translator.translate_document):
        with pytest.raises(ValueError, match=r"a `language` of eng, fra\. .* 'a casa é grande'"):
            call([f"{TAGS[0]} o gato", TEXTS[1]])
    lines, output = tmp_path / "lines", tmp_path / "output"
    lines.write_text("".join(f"{text}\n" for text in TEXTS))
    command = [str(folder), "--input", str(lines), "--output", str(output), "--num_beams", "1"]
    assert translate.main(command) == 1
    assert "several target languages: choose a `language` of eng, fra" in capsys.readouterr().err
    assert translate.main([*command, "--language", "fra", "--overwrite"]) == 0
    expected = translator.translate(TEXTS, language="fra")
    assert output.read_text().splitlines() == [" ".join(text.split()) for text in expected]


def test_a_model_with_one_target_language_has_none_to_choose(folder, tmp_path):
    other = write_published(tmp_path / "other")
    content = (other / "vocab.json").read_text()
    for tag, piece in zip(TAGS, ("one", "two"), strict=True):
        content = content.replace(f'"{tag}"', f'"{piece}"')
    (other / "vocab.json").write_text(content)
    translator = Translator.from_preset(other)
    assert translator.source_tokenizer.target_languages == ()
    with pytest.raises(ValueError, match="the model's are: none, the model has one"):
        translator.translate(TEXTS, language="eng")
