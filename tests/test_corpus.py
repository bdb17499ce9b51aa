"""The corpus: what is read, what is refused and where, what is dropped and how often."""

import gzip
import hashlib
import json
import sys
import types
import unicodedata

import pytest

from training.corpus.pairs import Corpus, Lines, clean, read_pairs, read_tfds


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
        return path

    return write


def test_lines_are_a_sequence_of_strings():
    texts = ["olá", "", "😀 é", "a"]
    lines = Lines(texts)
    assert list(lines) == texts and len(lines) == 4
    assert lines[2] == "😀 é" and lines[-1] == "a" and lines[::2] == ["olá", "😀 é"]
    with pytest.raises(IndexError):
        lines[4]


def test_reads_two_columns(write):
    path = write("pairs.tsv", "Olá.\tHello.\nSim.\tYes.\n")
    corpus = read_pairs(path)
    assert list(corpus.pairs()) == [("Olá.", "Hello."), ("Sim.", "Yes.")]
    assert list(corpus.lines()) == ["Olá.", "Sim.", "Hello.", "Yes."]
    assert corpus.files[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert corpus.files[0].lines == 2
    assert json.loads(json.dumps(corpus.record()))["pairs"] == 2


@pytest.mark.parametrize("ending", ["", ".gz", ".GZ"])
def test_reads_aligned_files(write, ending):
    source = write("train.pt" + ending, "\ufeffOlá.\r\nSim.\r\n")
    target = write("train.en" + ending, "Hello.\nYes.")
    corpus = read_pairs(source, target)
    assert list(corpus.pairs()) == [("Olá.", "Hello."), ("Sim.", "Yes.")]
    assert [file.path for file in corpus.files] == [str(source), str(target)]


def test_drops_are_counted(write):
    decomposed = unicodedata.normalize("NFD", "pão")
    rows = ["pão\tbread", f" {decomposed} \tbread", "pão\tloaf"]
    rows += ["\tempty", "vazio\t ", "a\t" + "b" * 11]
    corpus = read_pairs(write("pairs.tsv", "\n".join(rows)), max_characters=10)
    assert list(corpus.pairs()) == [("pão", "bread"), ("pão", "loaf")]
    assert (corpus.drops.empty, corpus.drops.long, corpus.drops.duplicate) == (2, 1, 1)
    for words in ("2 pairs", "2 with an empty side", "1 over-long", "1 duplicate"):
        assert words in corpus.summary()


@pytest.mark.parametrize(
    "content, message",
    [
        ("a\tb\nno tab\n", r"bad\.tsv, line 2: expected .* found 1 column: 'no tab'"),
        ("a\tb\tc\n", r"bad\.tsv, line 1: expected .* found 3 columns"),
        (b"a\tb\nc\t\xff\n", r"bad\.tsv, line 2: not UTF-8 at byte 2 of the line \(0xff\)"),
        ("", r"bad\.tsv: the file is empty"),
        ("\t\n", r"bad\.tsv: no pair is left of 1 lines"),
    ],
)
def test_bad_files_are_refused_by_name_and_line(write, content, message):
    with pytest.raises(ValueError, match=message):
        read_pairs(write("bad.tsv", content))


@pytest.mark.parametrize("long, short", [("source", "target"), ("target", "source")])
def test_unequal_files_are_refused(write, long, short):
    write(long, "a\nb\nc\n")
    path = write(short, "a\nb\n")
    with pytest.raises(ValueError, match=rf"{short} ends after line 2, but .*{long} has a line 3"):
        read_pairs(path.with_name("source"), path.with_name("target"))


def test_broken_gzip_is_refused(write):
    path = write("pairs.tsv.gz", "a\tb\n" * 100)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=r"pairs\.tsv\.gz: not a whole gzip file"):
        read_pairs(path)


def test_gzip_with_damage_inside_is_refused(write):
    path = write("pairs.tsv.gz", "".join(f"um {i}\tone {i}\n" for i in range(1000)))
    content = bytearray(path.read_bytes())
    content[20:200] = b"\xff" * 180  # beyond the header, where only the inflation notices
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pairs\.tsv\.gz: not a whole gzip file"):
        read_pairs(path)


def test_held_out_sentences_are_not_trained_on():
    pairs = [(f"pt {i}", f"en {i // 2}") for i in range(200)]  # each target has two sources
    train, held_out = clean(pairs).hold_out(20, seed=1)
    assert len(held_out) == 20
    assert set(train.targets).isdisjoint(held_out.targets)
    assert len(train) + len(held_out) + train.drops.shared == 200 and train.drops.shared > 0
    again, other = clean(pairs).hold_out(20, seed=1)[1], clean(pairs).hold_out(20, seed=2)[1]
    assert list(held_out.pairs()) == list(again.pairs()) != list(other.pairs())
    with pytest.raises(ValueError, match="cannot hold out 200 of 200 pairs"):
        clean(pairs).hold_out(200)


def test_dropped_pairs_are_counted_over_several_held_out_sets():
    corpus = clean([("um", "one"), ("dois", "two"), ("três", "three")])
    first, second = Corpus(["um"], ["1"]), Corpus(["2"], ["two"])
    rest = corpus.without(first).without(second)
    assert list(rest.pairs()) == [("três", "three")] and rest.drops.shared == 2


def test_nothing_left_to_train_with_is_an_error():
    corpus = Corpus(["a"], ["b"])
    with pytest.raises(ValueError, match="every pair shares a sentence"):
        corpus.without(corpus)


def test_tensorflow_datasets_failures_say_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(RuntimeError, match=r"pip install tensorflow-datasets.*--data FILE\.tsv"):
        read_tfds("ted_hrlr_translate/pt_to_en", "train")

    def load(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setitem(sys.modules, "tensorflow_datasets", types.SimpleNamespace(load=load))
    with pytest.raises(RuntimeError, match=r"no route to host.*--data FILE\.tsv"):
        read_tfds("ted_hrlr_translate/pt_to_en", "train")


def test_tensorflow_datasets_are_read(monkeypatch):
    fake = types.SimpleNamespace(
        load=lambda *args, **kwargs: ([], types.SimpleNamespace(full_name="ted/1.0")),
        as_numpy=lambda data: [("olá".encode(), b"hello"), ("olá".encode(), b"hello")],
    )
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    corpus = read_tfds("ted", "train")
    assert list(corpus.pairs()) == [("olá", "hello")] and corpus.drops.duplicate == 1
    assert corpus.files[0].path == "tfds:ted/1.0/train"
