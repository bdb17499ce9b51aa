"""The corpus: what is read, what is refused and where, what is dropped and how often."""

import collections
import gzip
import itertools
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from pyarrow import Table, parquet

from keras_tfmr import SubwordTokenizer
from training.command.disk import RunError
from training.corpus import sources, store
from training.corpus.filter import cleaned, identifier, typical_ratio
from training.corpus.pairs import UniquePairs, first_of_equal, read_pairs
from training.corpus.sources import Corpus
from training.data import encode, make_batches
from training.settings.training_config import TrainingConfig
from training.tasks import TranslationTask

PACKERS = {".GZ": gzip.compress, ".gz": gzip.compress}
PAIRS = [("Olá.", "Hello."), ("Sim, sim.", 'Yes, "yes".')]
PT_EN = TrainingConfig(languages=("pt", "en"))


def write(path, content):
    """A file of a text, packed as its name says, or of bytes as they are."""
    pack = PACKERS.get(path.suffix, bytes)
    path.write_bytes(content if isinstance(content, bytes) else pack(content.encode()))
    return path


def read(source, target="", settings=PT_EN):
    return read_pairs([Corpus(str(source), aligned=str(target))], settings)


@pytest.mark.parametrize("ending", ["", *PACKERS])
def test_reads_two_columns_and_aligned_files(tmp_path, ending):
    texts = "\ufeffOlá.\tHello.\r\n", 'Sim, sim.\tYes, "yes".'  # two packed files are one, too
    packed = b"".join(PACKERS.get(ending, bytes)(text.encode()) for text in texts)
    columns = write(tmp_path / f"a.tsv{ending}", packed)
    source = write(tmp_path / f"a.pt{ending}", "\ufeffOlá.\r\nSim, sim.\r\n")
    target = write(tmp_path / f"a.en{ending}", 'Hello.\n\tYes,\t"yes".')
    assert read(columns).pairs == read(source, target).pairs == PAIRS


def test_reads_tables_by_the_names_of_their_columns(tmp_path):
    rows = [{"id": 1, "en": en, "pt": pt} for pt, en in PAIRS]
    quoted = 'en,id,pt\nHello.,1,Olá.\n"Yes, ""yes"".",2,"Sim,\nsim."\n'
    parquet.write_table(Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (
        write(tmp_path / "a.csv.GZ", quoted),
        write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)),
        write(tmp_path / "b.jsonl", "".join(json.dumps({"translation": r}) + "\n" for r in rows)),
        tmp_path / "a.parquet",
    ):
        assert read(path).pairs == PAIRS, path
        reverse = read(path, settings=TrainingConfig(languages=("en", "pt")))
        assert reverse.pairs == [pair[::-1] for pair in PAIRS]
    texts = write(tmp_path / "c.csv", "source,translation\nUm.,One.\n")
    assert read(texts).pairs == [("Um.", "One.")]


def damaged():
    """Packed files cut short, and with damage beyond the header, where only inflation notices."""
    whole = gzip.compress("".join(f"um {i}\tone {i}\n" for i in range(1000)).encode())
    for content in (whole[:-12], whole[:20] + b"\xff" * 180 + whole[200:], b"um\tone\n"):
        yield "a.tsv.gz", content, "not a whole gzip file"


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.tsv", "a\tb\nno tab\n", r"line 2: expected .* found 1 column: 'no tab'"),
        ("a.tsv", b"a\tb\nc\t\xff\n", r"line 2: not UTF-8 at byte 2 of the line \(0xff\)"),
        ("a.tsv", "", "the file is empty"),
        ("a.tsv", "\t\n", "no pair is left of 1 lines; dropped: 1 with an empty side"),
        ("a.csv", "pt,en\na,b\na,b,c\n", "line 3: expected 2 cells, as in the first line"),
        ("a.tsv", "a\tb\nc\td\0e\n", r"line 2: not text, it holds a NUL character: 'd\\x00e'"),
        ("a.jsonl", '{"pt": "a", "en": 5}\n', r"line 1: expected texts. Received: \['a', 5\]"),
        ("a.jsonl", '{"pt": "a", "en": "b"}\n{', "line 2: not JSON"),
        ("a.jsonl", '["a", "b"]', r'line 1: expected an object, .* Received: \["a", "b"\]'),
        ("a.jsonl", '{"pt": "a", "en": "b"}\n{"pt": "c"}', "line 2: expected two columns.*: pt"),
        ("a.parquet", b"PAR1", r"a\.parquet: "),
        ("one", "a\nb\nc\n", "two ends after line 2, but .*one has a line 3"),
        *damaged(),
    ],
)
def test_what_is_wrong_is_refused_by_file_and_line(tmp_path, name, content, message):
    path = write(tmp_path / name, content)
    target = write(tmp_path / "two", "A\nB\n") if name == "one" else ""
    with pytest.raises(RunError, match=message) as raised:
        read(path, target)
    assert str(raised.value).startswith(str(path if "two ends" not in message else target))


@pytest.mark.parametrize(
    "refused, message",
    [
        (lambda: sources.parse(["a.tsv:3", "b.tsv"]), "all corpora a weight or none; b.tsv has"),
        (lambda: sources.parse(["a.tsv"], ["b.tsv=x"]), r"--tag must name a file.* Received: b"),
        (lambda: sources.parse(["a.tsv"], ["a.tsv"]), "FILE=TAG"),
        (lambda: sources.find("none-*.tsv"), r"none-\*\.tsv: No such file"),
        (lambda: identifier("pt", "xx"), "does not know xx"),
    ],
)
def test_what_makes_no_sense_is_refused(refused, message):
    with pytest.raises(RunError, match=message):
        refused()


def unique_of(folder, corpora, settings=PT_EN, **filters):
    """The `UniquePairs` of corpora after cleaning."""
    counts = collections.Counter()
    rows = [cleaned(rows, settings, counts, **filters) for rows in corpora]
    return UniquePairs(folder / "pile", rows, counts)


def test_duplicates_are_found_across_files_and_compositions(tmp_path):
    decomposed = unicodedata.normalize("NFD", "pão")
    rows = [("pão", "bread"), (f" {decomposed} ", "bread"), ("pão", "loaf"), ("", "x"), ("a", "\0")]
    pile = unique_of(tmp_path, [rows, [("c", "d" * 9), *rows]], TrainingConfig(max_characters=8))
    assert [*pile.read()] == [(0, "pão", "bread"), (0, "pão", "loaf")] and len(pile) == 2
    assert pile.counts == {"lines": 11, "empty": 4, "long": 1, "duplicate": 4}
    keys = np.random.default_rng(0).integers(0, 700, 2000).astype(np.uint64) << np.uint64(54)
    assert keys[first_of_equal(keys)].tolist() == list(dict.fromkeys(keys.tolist()))


@pytest.mark.parametrize(
    "name, bad",
    [
        ("identical", ("Sentence about Weather", "sentence about weather")),
        ("length_ratio", ("Esta frase fala do tempo que faz hoje na cidade grande.", "Yes.")),
        ("language", ("Dieser Satz handelt vom Wetter in der Stadt.", "It is about weather.")),
    ],
)
def test_each_filter_drops_what_it_is_for(tmp_path, name, bad):
    good = [(f"Esta frase número {i} fala do tempo.", f"It is about rain {i}.") for i in range(50)]
    filters = {"filters": (name,), "ratio": typical_ratio(good)}
    pile = unique_of(tmp_path, [[*good, bad]], **filters)
    assert [pair for _, *pair in pile.read()] == [[*pair] for pair in good]
    assert pile.counts[name] == 1
    assert len(unique_of(tmp_path, [[*good, bad]])) == 51  # unless asked for


def test_names_weights_and_patterns(tmp_path):
    for name in ("part", "part:2"):
        write(tmp_path / name, f"{name}\tx\n")
    whole, weighted, other = (
        sources.parse([f"{tmp_path}/{word}"])[0] for word in ("part:2", "part:2:0.5", "part:1.5")
    )
    assert [(Path(one.name).name, one.weight) for one in (whole, weighted, other)] == [
        ("part:2", None), ("part:2", 0.5), ("part", 1.5)
    ]  # fmt: skip
    (pattern,) = sources.parse([f"{tmp_path}/p*"])
    assert [*pattern.rows(PT_EN)] == [("part", "x"), ("part:2", "x")]
    assert sources.rates([whole, pattern], [900, 100]) == [1, 1]
    assert sources.rates([weighted, other], [900, 100]) == pytest.approx([250 / 900, 750 / 100])


def encoded_of(folder, rows, **settings):
    """A corpus of these rows, encoded in `folder`; with its tokenizers."""
    path = write(folder / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in rows))
    settings = {"data": (str(path),), "vocab_size": 290, **settings}
    return encode(TrainingConfig(**settings), folder / "encoded")


def texts_of(side, tokenizer):
    values, offsets = side
    rows = [values[a:b][None] for a, b in itertools.pairwise(offsets)]
    return [tokenizer.decode(row).numpy()[0].decode() for row in rows]


def test_held_out_sentences_are_not_trained_on(tmp_path):
    pairs = [(f"pt {i}", f"en {i // 2}") for i in range(200)]  # each target has two sources
    found, tokenizers = encoded_of(tmp_path, pairs)
    held_out = found.held_out["validation"]
    assert len(held_out) == 20 and set(held_out) < set(pairs)
    trained = texts_of(found.sides[1], tokenizers[1])
    assert {target for _, target in held_out}.isdisjoint(trained)
    dropped = found.record["train"]["dropped"]["shared"]
    assert len(trained) + 20 + dropped == 200 and dropped > 0
    for rows, message in (
        ([("a", "b")], "cannot hold out 1 of 1 pairs"),
        ([("a", "b"), ("c", "b")], "every pair shares a sentence"),
    ):
        with pytest.raises(RunError, match=message):
            encoded_of(tmp_path, rows * 9)
        assert not (tmp_path / "encoded").exists()


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    def write_later(*given):
        (tmp_path / "pairs.tsv").write_text("other\ttext\n")
        return write(*given)

    write = store.write
    monkeypatch.setattr(store, "write", write_later)
    with pytest.raises(RunError, match=r"changed while it was read: .*pairs\.tsv \(sha256"):
        encoded_of(tmp_path, [(f"um {i}", f"one {i}") for i in range(30)])
    assert not (tmp_path / "encoded").exists()


def test_an_encoded_corpus_that_is_damaged_is_not_read(tmp_path):
    _, tokenizers = encoded_of(tmp_path, [(f"um {i}", f"one {i}") for i in range(30)])
    folder = tmp_path / "encoded"
    other = SubwordTokenizer.learn(["um dois"] * 9, 270)
    assert store.read(folder, tokenizers) and not store.read(folder, (other, other))
    for name in store.ARRAYS:
        content = (folder / name).read_bytes()
        for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
            (folder / name).write_bytes(damaged)
            assert store.read(folder, tokenizers) is None
        (folder / name).write_bytes(content)
    (folder / "of the user").touch()
    store.delete(folder)
    assert [path.name for path in folder.iterdir()] == ["of the user"]


def test_tags_and_weights_of_corpora(tmp_path):
    paths = [tmp_path / "a.tsv", tmp_path / "b.tsv"]
    for path, line in zip(paths, ("gato {}\tcat {}\n", "rato {}\trat {}\n"), strict=True):
        write(path, "".join(line.format(i, i) for i in range(50)))
    data = (f"{paths[0]}:1", f"{paths[1]}:3")
    settings = TrainingConfig(data=data, tag=(f"{paths[1]}=<b>",), vocab_size=300).resolved()
    found, tokenizers = encode(settings, tmp_path / "encoded")
    texts = texts_of(found.sides[0], tokenizers[0])
    assert all(text.startswith("gato ") for text in texts[: found.parts[0]])
    assert all(text.startswith("<b> rato ") for text in texts[found.parts[0] :])
    for source, _ in found.held_out["validation"]:
        assert source.startswith(("gato ", "<b> rato "))
    batches = make_batches(settings, TranslationTask(settings, tokenizers), found)
    shares = [part.rate * (part.end - part.begin) for part in batches.parts]
    assert shares[1] == pytest.approx(3 * shares[0])
