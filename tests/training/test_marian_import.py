"""Published Marian models as run folders, held against what transformers computed with them."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from marian_fixture import LONGEST, VOCAB
from marian_models import (
    fixture,
    spms_and_pieces,
    write_release,
    write_transformers_folder,
)
from server_process import ServerProcess

from keras_tfmr.client import ServingClient
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.text.tokenizer import SubwordTokenizer
from training import import_marian
from training.marian import MarianError
from training.marian.run import model_of, read
from training.run import RunFolder

ROOT = Path(__file__).resolve().parents[2]
START = 2


@pytest.fixture(scope="module")
def spms():
    return spms_and_pieces()


@pytest.fixture(scope="module")
def known():
    return fixture()


def ours(published, ids):
    """Published ids as ours; those that a release lacks are padding."""
    order = published.target.order
    table = {int(old): new for new, old in enumerate(order) if new != START}
    return np.vectorize(lambda i: table.get(int(i), 0))(ids)


def logits_of(published, model, record, size):
    """Our logits of the first two sentences, in the published order of ids."""
    source, target = (ours(published, record[side])[:2] for side in ("source", "target"))
    target[:, 0] = START
    found = np.array(model([source, target]))  # [batch, target, vocab]
    return found[:, :, ours(published, np.arange(size))]


def test_logits_and_searches_of_a_transformers_folder(tmp_path, known, spms):
    record, weights = known
    published = read(write_transformers_folder(tmp_path / "folder", weights, spms=spms))
    _, model = model_of(published)
    found = logits_of(published, model, record, VOCAB)
    np.testing.assert_allclose(found, record["logits"], atol=1e-4)
    source = tf.constant(ours(published, record["source"]), tf.int32)
    for beams in (1, 4):
        decoding = DecodingConfig(num_beams=beams, max_length=LONGEST, length_penalty=0.0)
        step, state = model.start(source, num_beams=beams, max_length=LONGEST)
        result = decoding.decode(
            step, state, bos_ids=tf.fill([len(source)], 2), eos_id=3, banned_ids=(0, 1, 2)
        )
        expected = ours(published, record[f"ids_{beams}"])
        assert np.array(result.ids)[:, 0].tolist() == expected.tolist()
    np.testing.assert_allclose(np.array(result.scores)[:, 0], record["scores_4"], atol=1e-4)


def test_logits_of_a_release(tmp_path, known, spms):
    record, weights = known
    published = read(write_release(tmp_path / "release", weights, spms=spms))
    _, model = model_of(published)
    found = logits_of(published, model, record, VOCAB - 1)
    np.testing.assert_allclose(found, record["marian_logits"][:, :, :-1], atol=1e-4)
    assert np.abs(found - record["logits"][:, :, :-1]).max() > 1e-2  # another position table


def test_separate_vocabularies_and_an_output_layer_of_its_own(tmp_path, known, spms):
    record, weights = known
    table, bias = weights["model.shared.weight"], weights["final_logits_bias"]
    apart = {name: value for name, value in weights.items() if ".layers." in name}
    apart |= {
        "model.encoder.embed_tokens.weight": table,
        "model.decoder.embed_tokens.weight": table,
        "lm_head.weight": table,
        "final_logits_bias": bias,
    }
    folder = write_transformers_folder(
        tmp_path / "apart", apart, spms=spms,
        config={"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    )  # fmt: skip
    shutil.copy(folder / "vocab.json", folder / "target_vocab.json")
    published = read(folder)
    config, model = model_of(published)
    assert not config.joint_vocab and not config.tied_logits
    found = logits_of(published, model, record, VOCAB)
    np.testing.assert_allclose(found, record["logits"], atol=1e-4)


def zipped(folder):
    return Path(shutil.make_archive(str(folder), "zip", folder.parent, folder.name))


def tarred(folder):
    return Path(shutil.make_archive(str(folder), "gztar", folder))


def gzipped(folder):
    for file in [*folder.iterdir()]:
        if file.suffix in (".npz", ".yml"):
            Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    return folder


@pytest.mark.parametrize("pack", [zipped, tarred, gzipped])
def test_a_release_is_taken_as_downloaded(tmp_path, known, spms, pack):
    plain = read(write_release(tmp_path / "plain", known[1], spms=spms))
    packed = read(pack(write_release(tmp_path / "packed", known[1], spms=spms)))
    assert packed.target.pieces == plain.target.pieces == spms[1]
    assert packed.config == plain.config and packed.spms == plain.spms
    for name, value in plain.arrays.items():
        np.testing.assert_array_equal(packed.arrays[name], value)


def test_the_command_writes_a_run_that_translates(tmp_path, known, spms, capsys):
    folder = write_transformers_folder(
        tmp_path / "opus-mt-pt-en", known[1], spms=spms, generation={"no_repeat_ngram_size": 3}
    )
    run = tmp_path / "run"
    command = [str(folder), "--output", str(run), "--target_language", "eng"]
    assert import_marian.main(command) == 0
    said = capsys.readouterr().out
    assert "note: no_repeat_ngram_size: 3 has no effect here" in said
    assert import_marian.main(command) == 1
    assert "holds a finished run" in capsys.readouterr().err
    assert import_marian.main([*command, "--overwrite"]) == 0
    config = json.loads((run / "config.json").read_text())
    assert config["arguments"] == {
        "num_beams": 4, "length_penalty": 1.0, "length_penalty_offset": 0.0, "max_length": 14,
    }  # fmt: skip
    assert config["published"]["target_languages"] == ["eng", "fra"]
    assert "CC BY 4.0" in (run / "report.md").read_text()
    source, target = (SubwordTokenizer.load(run / f"{side}.model") for side in ("source", "target"))
    assert source.encode(["o gato"]).to_list()[0][0] == source.encode([">>eng<<"]).to_list()[0][0]
    assert target.encode([">>fra<< a"]).to_list() != target.encode(["a"]).to_list()


@pytest.mark.slow
def test_an_imported_model_is_exported_and_served(tmp_path, known, spms):
    """The commands of docs/guide/pretrained.md, over both transports."""
    folder = write_transformers_folder(tmp_path / "opus-mt-pt-en", known[1], spms=spms)
    run = tmp_path / "run"
    texts = ["o gato está na mesa", "a casa\u00a0é grande?", "", "bom dia 👋"]
    commands = ["training/import_marian.py", folder, "--output", run], ["serving/export.py", run]
    for command in commands:
        subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, check=True)
    expected = RunFolder(run).translator(num_return_sequences=1).translate_nbest(texts)
    flags = [f"--model_base_path={run / 'saved_model'}"]
    with ServerProcess(tmp_path, *flags) as server:
        for port, rest in ((server.port, False), (server.rest_port, True)):
            with ServingClient(f"127.0.0.1:{port}", rest=rest) as client:
                for found, (best,) in zip(client.translate(texts), expected, strict=True):
                    assert found.text == best.text
                    assert found.score == pytest.approx(best.score, abs=1e-4)


def without(names):
    def change(folder):
        for name in names:
            (folder / name).unlink()

    return change


WRONG_OPTIONS = [
    ({"type": "s2s"}, "the model has type: s2s, which is not imported; expected 'transformer'"),
    ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "dec-cell: gru"),
    ({"transformer-decoder-autoreg": "average-attention"}, "autoreg: average-attention"),
    ({"transformer-preprocess": "n"}, "top: 'n', 'dan', '', which are not imported"),
    ({"transformer-postprocess-emb": "nd"}, "transformer-postprocess-emb: nd"),
    ({"transformer-ffn-activation": "gelu"}, "transformer-ffn-activation: gelu"),
    (
        {"transformer-train-position-embeddings": True},
        "transformer-train-position-embeddings: true",
    ),
    ({"factors-dim-emb": 8}, "factors-dim-emb: 8"),
    ({"transformer-decoder-dim-ffn": 96}, "transformer-decoder-dim-ffn: 96"),
]


@pytest.mark.parametrize("options, message", WRONG_OPTIONS)
def test_another_architecture_is_named(tmp_path, known, spms, options, message):
    with pytest.raises(MarianError, match=message):
        read(write_release(tmp_path / "release", known[1], options=options, spms=spms))


def test_what_has_no_effect_is_named(tmp_path, known, spms):
    decoder = {"word-penalty": 0.5, "max-length-factor": 2}
    published = read(write_release(tmp_path / "release", known[1], spms=spms, decoder=decoder))
    assert "after 2 tokens for each source token" in published.notes[0]
    assert published.notes[1] == "word-penalty: 0.5 in decoder.yml has no effect here"
    assert published.decoding["num_beams"] == 6 and published.decoding["length_penalty"] == 1.0
    assert published.decoding["max_length_ratio"] == 2.0


def test_tied_layers_share_their_weights(tmp_path, known, spms):
    tied = {"transformer-tied-layers": [1, 1]}
    arrays = read(write_release(tmp_path / "plain", known[1], spms=spms)).arrays
    folder = write_release(tmp_path / "tied", known[1], options=tied, spms=spms)
    with np.load(folder / "opus.npz") as file:
        kept = {n: file[n] for n in file.files if not n.startswith("decoder_l2")}
    np.savez(folder / "opus.npz", **kept)
    published = read(folder)
    model_of(published)
    np.testing.assert_array_equal(
        published.arrays["decoder_l2_self_Wq"], arrays["decoder_l1_self_Wq"]
    )


def test_arrays_of_another_architecture_are_named(tmp_path, known, spms):
    extra = {"decoder_l1_aan_W1": np.zeros((24, 24), "float32")}
    published = read(write_release(tmp_path / "release", known[1], extra=extra, spms=spms))
    with pytest.raises(
        MarianError, match="1 arrays that no Marian Transformer has: decoder_l1_aan"
    ):
        model_of(published)
    del published.arrays["encoder_l1_ffn_W1"]
    with pytest.raises(MarianError, match="no array encoder_l1_ffn_W1"):
        model_of(published)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"model_type": "bart"}, "the model has model_type: bart"),
        ({"normalize_before": True}, "the model has normalize_before: True"),
        ({"static_position_embeddings": False}, "static_position_embeddings: False"),
        ({"activation_function": "tanh"}, "activation_function: tanh"),
        ({"decoder_ffn_dim": 96}, "ffn_dim of 48 in the encoder and 96"),
    ],
)
def test_another_transformers_model_is_named(tmp_path, known, spms, config, message):
    with pytest.raises(MarianError, match=message):
        read(write_transformers_folder(tmp_path / "folder", known[1], config=config, spms=spms))


def test_missing_and_broken_files_are_named(tmp_path, known, spms, capsys):
    folder = write_transformers_folder(tmp_path / "folder", known[1], spms=spms)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(MarianError, match=r"pytorch_model\.bin"):
        read(folder)
    release = write_release(tmp_path / "release", known[1], spms=spms)
    (release / "source.spm").rename(release / "source.bpe")
    with pytest.raises(MarianError, match="made with subword-nmt"):
        read(release)
    (release / "opus.npz").write_bytes(b"PK broken")
    with pytest.raises(MarianError, match=r"opus\.npz is not an \.npz"):
        read(release)
    (release / "opus.npz").unlink()
    with pytest.raises(MarianError, match=r"expected a file \*best-perplexity.npz or \*.npz"):
        read(release)
    assert import_marian.main([str(tmp_path / "none"), "--output", str(tmp_path / "run")]) == 1
    assert "there is no folder or archive" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.json").exists()


def test_learned_positions_of_a_transformers_folder_are_named(tmp_path, known, spms):
    table = np.ones((64, 24), "float32")
    weights = {**known[1], "model.encoder.embed_positions.weight": table}
    with pytest.raises(MarianError, match="learned position embeddings"):
        read(write_transformers_folder(tmp_path / "folder", weights, spms=spms))


def test_a_language_the_model_lacks_is_named(tmp_path, known, spms, capsys):
    folder = write_transformers_folder(tmp_path / "folder", known[1], spms=spms)
    command = [str(folder), "--output", str(tmp_path / "run"), "--target_language", "deu"]
    assert import_marian.main(command) == 1
    assert "unknown target language 'deu'; the model's are: eng, fra" in capsys.readouterr().err
