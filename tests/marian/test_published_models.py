"""Published Marian models as run folders: what transformers computed with them, and Marian itself.

Marian made tests/data/marian_peer.zip; the history has the script: `git log -p --
tests/peers/marian.py`.
"""

import functools
import gzip
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from marian_models import (
    CONFIG,
    LONGEST,
    VOCAB,
    fixture,
    spms_and_pieces,
    write_release,
    write_transformers_folder,
)

from keras_tfmr import Translator
from keras_tfmr.decoding import DecodingConfig, Examples, search
from keras_tfmr.errors import PresetError
from keras_tfmr.presets import marian
from keras_tfmr.presets.find import unpacked
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.marian import release as releases
from keras_tfmr.presets.marian import transformers_folder
from serving import export
from training import import_marian, phrasebook

START = 2
TEXTS = [source for source, _ in phrasebook.pairs(5)]
RECORD, WEIGHTS = fixture()
PEER = Path(__file__).resolve().parents[1] / "data" / "marian_peer.zip"
PYTHON = os.environ.get("MARIAN_PYTHON")


@pytest.fixture
def folder(tmp_path):
    """`folder(**changes)` is a published model of transformers."""
    return lambda weights=WEIGHTS, **changes: write_transformers_folder(
        tmp_path / "opus-mt-pt-en", weights, **changes
    )


@pytest.fixture
def release(tmp_path):
    """`release(**changes)` is a published model of Marian."""
    return lambda **changes: write_release(tmp_path / "release", WEIGHTS, **changes)


def ours(described, ids):
    """Published ids as ours; those that a release lacks are padding."""
    order = described.vocabularies[1].order
    table = {int(old): new for new, old in enumerate(order) if new != START}
    return np.vectorize(lambda i: table.get(int(i), 0))(ids)


def logits_of(path):
    """Our logits of the first two sentences, in the published order of ids."""
    described, model = transformers_folder.describe(path), marian.read(path).model
    source, target = (ours(described, RECORD[side])[:2] for side in ("source", "target"))
    target[:, 0] = START
    found = np.array(model([source, target]))  # [batch, target, vocab]
    return found[:, :, ours(described, np.arange(VOCAB))]


def test_logits_and_searches_of_a_transformers_folder(folder):
    path = folder()
    np.testing.assert_allclose(logits_of(path), RECORD["logits"], atol=1e-4)
    described, model = transformers_folder.describe(path), marian.read(path).model
    source = tf.constant(ours(described, RECORD["source"]), tf.int32)
    for beams in (1, 4):
        decoding = DecodingConfig(num_beams=beams, max_length=LONGEST, length_penalty=0.0)
        step, state = model.start(source, num_beams=beams, max_length=LONGEST)
        examples = Examples(tf.fill([len(source)], 2), eos_id=3, banned_ids=(0, 1, 2))
        result = search(step, state, decoding, examples)
        expected = ours(described, RECORD[f"ids_{beams}"])
        assert np.array(result.ids)[:, 0].tolist() == expected.tolist()
    np.testing.assert_allclose(np.array(result.scores)[:, 0], RECORD["scores_4"], atol=1e-4)


def test_separate_vocabularies_and_an_output_layer_of_its_own(folder):
    weights = {name: value for name, value in WEIGHTS.items() if ".layers." in name}
    names = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    weights |= {f"{name}.weight": WEIGHTS["model.shared.weight"] for name in names}
    weights["final_logits_bias"] = WEIGHTS["final_logits_bias"]
    apart = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    path = folder(weights, config=apart)
    shutil.copy(path / "vocab.json", path / "target_vocab.json")
    config = marian.read(path, weights=False).model.config
    assert not config.joint_vocab and not config.tied_logits
    np.testing.assert_allclose(logits_of(path), RECORD["logits"], atol=1e-4)


@pytest.mark.needs("torch", "transformers")
@pytest.mark.parametrize("joint", [True, False])
def test_what_transformers_saves_gives_its_translations_token_for_token(joint, tmp_path):
    import torch
    import transformers

    tying = {"share_encoder_decoder_embeddings": joint, "tie_word_embeddings": joint}
    config = transformers.MarianConfig(**CONFIG | tying, decoder_vocab_size=VOCAB)
    model = transformers.MarianMTModel(config).eval()
    state = {name: torch.tensor(value) for name, value in WEIGHTS.items()}
    torch.manual_seed(3)
    own = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    for name in () if joint else own:
        noise = 1 + 0.3 * torch.randn(VOCAB, 1)
        state[f"{name}.weight"] = noise * state["model.shared.weight"]
    model.load_state_dict(state, strict=False)
    path = write_transformers_folder(tmp_path / "opus-mt-pt-en", {})
    if not joint:
        shutil.copy(path / "vocab.json", path / "target_vocab.json")
    ids = {"bad_words_ids": [[VOCAB - 1], [1]], "num_beams": 1, "max_new_tokens": 12}
    model.generation_config.update(**ids)
    model.save_pretrained(path)
    texts = [f">>{language}<< {text}" for language in ("eng", "fra") for text in TEXTS]
    inputs = transformers.MarianTokenizer.from_pretrained(path)(
        texts, return_tensors="pt", padding=True
    )
    theirs = ours(transformers_folder.describe(path), model.generate(**inputs).numpy()[:, 1:])
    translator = Translator.from_preset(path)
    pieces = translator.target_tokenizer.pieces(theirs).numpy().tolist()
    expected = [[piece.decode() for piece in row if piece] for row in pieces]
    assert [one.target_tokens for one in translator.explain(texts)] == expected
    assert len({*map(tuple, expected)}) > len(texts) / 3


def zipped(folder):
    return Path(shutil.make_archive(str(folder), "zip", folder.parent, folder.name))


def tarred(folder):
    return Path(shutil.make_archive(str(folder), "gztar", folder))


def gzipped(folder):
    for file in [*folder.glob("*.npz"), *folder.glob("*.yml")]:
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return folder


def read(path):
    """What a published model's folder or archive holds."""
    with unpacked(path) as folder:
        return marian.read(folder)


def test_a_release_is_taken_as_downloaded(release):
    described, plain = releases.describe(release()), read(release())
    assert described.vocabularies[1].pieces == spms_and_pieces()[1]
    for pack in (zipped, tarred, gzipped):
        packed = read(pack(release()))
        assert packed.model.config == plain.model.config and packed.decoding == plain.decoding
        for side in ("source_tokenizer", "target_tokenizer"):
            assert getattr(packed, side).model_bytes == getattr(plain, side).model_bytes
        for found, value in zip(packed.model.weights, plain.model.weights, strict=True):
            np.testing.assert_array_equal(found, value)


def test_the_command_writes_a_run_that_translates(folder, tmp_path, capsys):
    path, run = folder(generation={"no_repeat_ngram_size": 3}), tmp_path / "run"
    command = [str(path), "--output", str(run), "--language"]
    assert import_marian.main([*command, "deu"]) == 1
    assert "unknown target language 'deu'; the model's are: eng, fra" in capsys.readouterr().err
    assert import_marian.main([*command, "eng", "--overwrite"]) == 0
    assert "note: no_repeat_ngram_size: 3 has no effect here" in capsys.readouterr().out
    config = json.loads((run / "config.json").read_text())
    assert config["arguments"] == {
        "num_beams": 4, "length_penalty": 1.0, "length_penalty_offset": 0.0, "max_length": 14,
        "min_length": 0, "max_length_ratio": 3.0, "max_length_extra": 8,
    }  # fmt: skip
    assert config["published"]["target_languages"] == ["eng", "fra"]
    assert "CC BY 4.0" in (run / "report.md").read_text()
    source, target = PresetFolder(run).tokenizers()
    assert source.encode(["o gato"]).to_list()[0][0] == source.encode([">>eng<<"]).to_list()[0][0]
    assert target.encode([">>fra<< a"]).to_list() != target.encode(["a"]).to_list()


def test_what_has_no_effect_is_named(release):
    published = read(release(decoder={"word-penalty": 0.5, "max-length-factor": 2}))
    assert "after 2 tokens for each source token" in published.notes[0]
    assert published.notes[1] == "word-penalty: 0.5 in decoder.yml has no effect here"
    decoding = published.decoding
    assert (decoding.num_beams, decoding.length_penalty, decoding.max_length_ratio) == (6, 1.0, 2.0)


def test_the_model_is_known_before_its_weights_are_read(release, folder):
    path = release()
    whole = read(path).model.config
    with np.load(path / "opus.npz") as file:
        empty = {n: np.zeros(0, "float32") for n in file.files if n != "special:model.yml"}
        np.savez(path / "opus.npz", **empty, **{"special:model.yml": file["special:model.yml"]})
    assert marian.read(path, weights=False).model.config == whole
    with pytest.raises(PresetError, match="Wemb has shape"):
        read(path)
    path = folder()
    whole = read(path).model.config
    (path / "model.safetensors").unlink()
    assert marian.read(path, weights=False).model.config == whole
    with pytest.raises(PresetError, match="normalize_embedding: true, which is not supported"):
        write_transformers_folder(path, {}, config={"normalize_embedding": True})
        read(path)


def test_the_languages_and_sentences_of_its_tests_are_a_model_s_own(release, folder):
    path = release()
    assert (read(path).source_language, read(path).texts) == (None, ())
    (path / "README.md").write_text(
        "# opus\n* source language(s): por\n* target language(s): eng\n"
    )
    lines = ["O gato.", "The cat.", "A cat.", "", "A casa.", "The house.", "House.", ""]
    (path / "opus.test.txt").write_text("\n".join(lines))
    (path / "opus.eval.txt").write_text("BLEU = 40\n")
    published = read(path)
    assert (published.source_language, published.target_language) == ("por", "eng")
    assert published.texts == ("O gato.", "A casa.")
    path = folder()
    (path / "tokenizer_config.json").write_text('{"source_lang": "pob", "target_lang": "eng"}')
    assert read(path).source_language == "pob"
    assert marian.recognise(path) == "transformers folder"
    assert marian.recognise(path.parent) is None


def test_tied_layers_share_their_weights(release):
    path = release(options={"transformer-tied-layers": [1, 1]}) / "opus.npz"
    with np.load(path) as file:
        kept = {n: file[n] for n in file.files if not n.startswith("decoder_l2")}
    np.savez(path, **kept)
    first, second = read(path.parent).model.decoder.layers
    for found, value in zip(second.weights, first.weights, strict=True):
        np.testing.assert_array_equal(found, value)


def test_another_architecture_is_named(release, folder):
    for options, message in (
        ({"type": "s2s"}, "the model has type: s2s, .* expected transformer"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "dec-cell, .*: gru"),
        ({"transformer-decoder-autoreg": "average-attention"}, "autoreg: average-attention"),
        ({"transformer-preprocess": "n"}, "top: n, dan, '', which is not supported"),
        ({"transformer-postprocess-emb": "nd"}, "transformer-postprocess-emb: nd"),
        ({"transformer-ffn-activation": "gelu"}, "transformer-ffn-activation: gelu"),
        ({"transformer-train-position-embeddings": True}, "train-position-embeddings: true"),
        ({"factors-dim-emb": 8}, "factors-dim-emb: 8"),
        ({"transformer-decoder-dim-ffn": 96}, "transformer-decoder-dim-ffn: 96, which is not"),
        ({"dim-emb": 25}, "dim-emb: 25; expected an even number of 4 or more"),
        ({"enc-depth": "all"}, "enc-depth: all; expected 1 or more"),
        ({"transformer-heads": 5}, r"release: .*divisible .* d_model=24, num_heads=5"),
        ({"dim-vocabs": [99, 99]}, r"opus\.vocab\.yml has 299 pieces, the model 99 embeddings"),
    ):
        with pytest.raises(PresetError, match=message):
            read(release(options=options))
    for config, message in (
        ({"model_type": "bart"}, "the model has model_type: bart"),
        ({"normalize_before": True}, "the model has normalize_before: true"),
        ({"static_position_embeddings": False}, "static_position_embeddings: false"),
        ({"activation_function": "tanh"}, "activation_function: tanh"),
        ({"decoder_ffn_dim": 96}, "encoder_ffn_dim: 48 and decoder_ffn_dim: 96"),
    ):
        with pytest.raises(PresetError, match=message):
            read(folder(config=config))
    path = release(extra={"decoder_l1_aan_W1": np.zeros((24, 24), "float32")})
    with pytest.raises(PresetError, match=r"1 arrays that no Marian Trans.* has: decoder_l1_aan"):
        read(path)
    with np.load(path / "opus.npz") as file:
        kept = {n: file[n] for n in file.files if n != "encoder_l1_ffn_W1"}
    np.savez(path / "opus.npz", **kept)
    with pytest.raises(PresetError, match="no array encoder_l1_ffn_W1"):
        read(path)


@pytest.mark.parametrize("pack", [zipped, tarred, gzipped])
def test_damage_is_named_wherever_it_is(release, pack):
    path = pack(release())
    file = next(path.glob("*.npz.gz")) if path.is_dir() else path
    whole = file.read_bytes()
    for begin in (20, len(whole) // 3, len(whole) // 2, len(whole) - 30):
        for damaged in (whole[:begin] + b"\xff" * 25 + whole[begin + 25 :], whole[:begin]):
            file.write_bytes(damaged)
            with pytest.raises(PresetError):
                read(path)


def test_missing_and_broken_files_are_named(folder, release):
    path = folder()
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(PresetError, match=r"pytorch_model\.bin"):
        read(path)
    path = release()
    (path / "source.spm").rename(path / "source.bpe")
    with pytest.raises(PresetError, match="made with subword-nmt"):
        read(path)
    (path / "opus.fsv").touch()
    (path / "decoder.yml").write_text("vocabs: [opus.fsv, opus.fsv]")
    with pytest.raises(PresetError, match=r"opus\.fsv: a factored vocabulary is not supported"):
        read(path)
    (path / "opus.npz").write_bytes(b"PK broken")
    with pytest.raises(PresetError, match=r"opus\.npz is not an \.npz"):
        read(path)
    (path / "opus.npz").unlink()
    with pytest.raises(PresetError, match=r"expected a file \*best-perplexity.npz or \*.npz"):
        read(path)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """(What Marian answered, the run folder) of a form."""

    @functools.cache
    def imported(form):
        folder = tmp_path_factory.mktemp("peer")
        with zipfile.ZipFile(PEER) as archive:
            archive.extractall(folder)
        assert import_marian.main([str(folder / form), "--output", str(folder / "run")]) == 0
        return json.loads((folder / f"{form}.json").read_text()), folder / "run"

    return imported


# Marian's beam search is another one where a model is unsure, as so small an SSRU is.
@pytest.mark.parametrize(
    ("form", "search"), [("opus", "greedy"), ("opus", "beam"), ("ssru", "greedy")]
)
def test_translations_and_scores_are_those_of_marian(imported, form, search):
    answers, run = imported(form)
    # As in decoder.yml: 4 beams, scores by length.
    options = {"num_beams": 1, "length_penalty": 0.0} if search == "greedy" else {}
    found = Translator.from_preset(run, num_return_sequences=1, **options).translate_nbest(
        answers["source"]
    )
    texts, scores = zip(*((best.text, best.score) for best, *_ in found), strict=True)
    expected, _, marian_scores = zip(*answers[search], strict=True)
    assert len(found) == 200
    same = np.array(texts) == np.array(expected)
    assert same.mean() >= 0.99, np.array([texts, expected]).T[~same][:5]
    np.testing.assert_allclose(np.array(scores)[same], np.array(marian_scores)[same], atol=1e-3)


# Some texts can be split into subwords in another way than Marian's hypothesis was; references not.
@pytest.mark.parametrize(
    ("form", "what", "share"), [("ssru", "beam", 0.95), ("spm", "references", 1)]
)
def test_log_probabilities_are_those_of_marian(imported, form, what, share):
    answers, run = imported(form)
    texts, log_probs = zip(*(row[:2] for row in answers[what]), strict=True)
    scored = Translator.from_preset(run).score(answers["source"], texts)
    found = np.array([each.log_prob for each in scored])
    assert len(found) == 200
    assert np.mean(np.isclose(found, log_probs, atol=1e-3)) >= share


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="MARIAN_PYTHON is not set")
@pytest.mark.parametrize("beams", [1, 4])
def test_marian_translates_a_written_release_to_the_same_sentences(imported, beams, tmp_path):
    """Run by hand: MARIAN_PYTHON is the interpreter of an environment with pymarian."""
    (answers, run), release = imported("opus"), tmp_path / "release"
    sources = answers["source"]
    assert export.main([str(run), "--format", "marian", "--output", str(release)]) == 0
    spms = [
        sentencepiece.SentencePieceProcessor(model_file=str(release / f"{side}.spm"))
        for side in ("source", "target")
    ]
    lines = (" ".join(pieces) for pieces in spms[0].encode(sources, out_type=str))
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    words = f"decode --config decoder.yml --relative-paths --input {tmp_path / 'lines'}"
    words += f" --beam-size {beams} --normalize {beams > 1:d} --mini-batch 1 --cpu-threads 1"
    done = subprocess.run(
        [PYTHON, "-m", "pymarian", *words.split(), "--quiet", "--quiet-translation"],
        cwd=release, capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = [spms[1].decode(line.split()) for line in done.stdout.splitlines()]
    search = {"num_beams": beams, "length_penalty": float(beams > 1), "num_return_sequences": 1}
    ours = [n[0].text for n in Translator.from_preset(run, **search).translate_nbest(sources)]
    assert sum(map(str.__eq__, ours, theirs)) >= 0.99 * len(sources)
