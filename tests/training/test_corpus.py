"""The corpus: what is read, what is refused and where, what is dropped and how often."""

import bz2
import gzip
import itertools
import json
import lzma
import unicodedata
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from backports import zstd
from hypothesis import strategies as st
from pyarrow import Table, parquet

from keras_tfmr import SubwordTokenizer
from training.command.disk import RunError
from training.corpus import sources, store
from training.corpus.filter import REASONS, Rules, usual_ratio
from training.corpus.held_out import read_pairs
from training.corpus.sources import Corpus
from training.corpus.unique import UniquePairs, first_of_equal
from training.data import encode, make_batches
from training.settings.training_config import TrainingConfig
from training.tasks import TranslationTask

PACKERS = {".GZ": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}
KINDS = {".GZ": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
PAIRS = [("Olá.", "Hello."), ("Sim, sim.", 'Yes, "yes".')]
SETTINGS = TrainingConfig(languages=("pt", "en"))


def write(path, content):
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(PACKERS.get(path.suffix, bytes)(content))
    return path


def read(source, target="", **settings):
    settings = TrainingConfig(**{"languages": ("pt", "en"), **settings})
    return read_pairs([Corpus(str(source), aligned=str(target))], settings)


@pytest.mark.parametrize("ending", ["", *PACKERS])
def test_reads_two_columns_and_aligned_files(tmp_path, ending):
    columns = write(tmp_path / f"a.tsv{ending}", '\ufeffOlá.\tHello.\r\nSim, sim.\tYes, "yes".')
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
        assert read(path, languages=("en", "pt")).pairs == [pair[::-1] for pair in PAIRS]
        with pytest.raises(RunError, match="expected two columns, or --set languages"):
            read(path, languages=("pt", "de"))


def test_what_is_wrong_is_refused_by_file_and_line(tmp_path):
    for name, content, message in (
        ("a.tsv", "a\tb\nno tab\n", r"line 2: expected .* found 1 column: 'no tab'"),
        ("a.tsv", "a\tb\tc\n", r"line 1: expected .* found 3 columns"),
        ("a.tsv", b"a\tb\nc\t\xff\n", r"line 2: not UTF-8 at byte 2 of the line \(0xff\)"),
        ("a.tsv", "", "the file is empty"),
        ("a.tsv", "\ufeff", "the file is empty"),
        ("a.tsv", "\t\n", "no pair is left of 1 lines; dropped: 1 with an empty side"),
        ("a.csv", "pt,en\n", "the file is empty"),
        (
            "a.csv",
            "pt,en\na,b\na,b,c\n",
            "line 3: expected 2 cells, as in the first line, found mo",
        ),
        ("a.csv", "pt,en\na\n", r"line 2: expected texts. Received: \['a', None\]"),
        ("a.csv", 'pt,en\na,"b\n', "line 2: unexpected end of data"),
        ("a.jsonl", '{"pt": "a", "en": "b"}\n{', "line 2: not JSON"),
        ("a.jsonl", '["a", "b"]', r"line 1: expected an object, .* Received: \[\"a\", \"b\"\]"),
        ("a.jsonl", '{"pt": "a", "en": "b"}\n{"pt": "c"}', "line 2: expected two columns.*: pt"),
        ("a.parquet", "PAR1", r"a\.parquet: "),
    ):
        path = write(tmp_path / name, content)
        with pytest.raises(RunError, match=message) as raised:
            read(path)
        assert str(raised.value).startswith(str(path))


def test_unequal_files_are_refused(tmp_path):
    long, short = write(tmp_path / "long", "a\nb\nc\n"), write(tmp_path / "short", "a\nb\n")
    for paths in ((long, short), (short, long)):
        with pytest.raises(RunError, match=r"short ends after line 2, but .*long has a line 3"):
            read(*paths)


@pytest.mark.parametrize("ending", PACKERS)
def test_a_broken_archive_is_refused(tmp_path, ending):
    path = write(tmp_path / f"a.tsv{ending}", "".join(f"um {i}\tone {i}\n" for i in range(1000)))
    whole = path.read_bytes()
    path.write_bytes(2 * whole)  # two of them are one, too
    assert read(path).counts["duplicate"] == 1000
    # Cut short, and with damage beyond the header, where only the inflation notices.
    for content in (whole[:-12], whole[:20] + b"\xff" * 180 + whole[200:], b"um\tone\n"):
        path.write_bytes(content)
        with pytest.raises(RunError, match=rf"a\.tsv{ending}: not a whole {KINDS[ending]} file"):
            read(path)


LINE_TEXT = st.text(
    st.characters(exclude_characters="\n\r\t", exclude_categories=["Cs"]), max_size=9
)


@hypothesis.given(st.lists(st.tuples(LINE_TEXT, LINE_TEXT), min_size=1, max_size=30))
@hypothesis.settings(deadline=None, max_examples=60)
def test_any_text_is_read_as_it_was_written(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("any") / "pairs.tsv"
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode())
    expected = [tuple(unicodedata.normalize("NFC", s).strip() for s in pair) for pair in pairs]
    # A character can be seen that is neither a space nor a control, format or unassigned one.
    seen = [
        all(any(unicodedata.category(c)[0] not in "CZ" for c in s) for s in p) for p in expected
    ]
    expected = list(dict.fromkeys(itertools.compress(expected, seen)))
    if expected and not pairs[0][0].startswith("\ufeff"):
        assert read(path).pairs == expected


def test_duplicates_are_found_across_files_and_compositions(tmp_path, monkeypatch):
    decomposed = unicodedata.normalize("NFD", "pão")
    rows = [("pão", "bread"), (f" {decomposed} ", "bread"), ("pão", "loaf"), ("", "x"), ("a", "\0")]
    pile = UniquePairs(tmp_path / "pile", [rows, [("c", "d" * 9), *rows]], Rules(max_characters=8))
    assert [*pile.read()] == [(0, "pão", "bread"), (0, "pão", "loaf")] and len(pile) == 2
    assert pile.counts == {"lines": 11, "empty": 4, "long": 1, "duplicate": 4}
    monkeypatch.setattr("training.corpus.unique.SORTED", 100)  # keys that are sorted together
    keys = np.random.default_rng(0).integers(0, 700, 2000).astype(np.uint64)
    assert keys[first_of_equal(keys)].tolist() == list(dict.fromkeys(keys.tolist()))


GOOD = [
    (f"Esta frase número {i} fala do tempo.", f"Sentence {i} is about weather.") for i in range(50)
]


@pytest.mark.parametrize(
    "name, bad",
    [
        ("identical", ("Sentence about Weather", "sentence about weather")),
        ("length_ratio", ("Esta frase fala do tempo que faz hoje na cidade grande.", "Yes.")),
        ("language", ("Dieser Satz handelt vom Wetter in der Stadt.", "It is about weather.")),
    ],
)
def test_each_filter_drops_what_it_is_for(tmp_path, name, bad):
    rules = Rules(filters=(name,), languages=("pt", "en"), ratio=usual_ratio(GOOD))
    pile = UniquePairs(tmp_path / "pile", [[*GOOD, bad]], rules)
    assert [pair for _, *pair in pile.read()] == [[*pair] for pair in GOOD]
    assert pile.counts[name] == 1 and name in REASONS
    assert len(UniquePairs(tmp_path / "pile", [[*GOOD, bad]], Rules())) == 51  # unless asked for


def test_settings_that_make_no_sense_are_refused():
    for refused, message in (
        (lambda: sources.parse(["a.tsv:3", "b.tsv"]), "all corpora a weight or none; b.tsv has"),
        (lambda: sources.parse(["a.tsv:0"]), "must be positive. Received: a.tsv:0"),
        (lambda: sources.parse(["a.tsv"], ["b.tsv=x"]), "--tag must name a file.* Received: b.tsv"),
        (lambda: sources.parse(["a.tsv"], ["a.tsv"]), "FILE=TAG"),
        (lambda: sources.parse(["a.tsv"], ["a.tsv=x", "a.tsv=y"]), "one tag for each file"),
        (lambda: sources.find("none-*.tsv"), r"none-\*\.tsv: No such file"),
        (lambda: Rules(filters=("spam",)), r"Filters are identical.* Received: spam"),
        (lambda: Rules(filters=("language",)), "needs the languages"),
        (lambda: Rules(filters=("language",), languages=("pt", "xx")), "does not know xx"),
    ):
        with pytest.raises(RunError, match=message):
            refused()


def test_names_weights_and_patterns(tmp_path):
    for name in ("part", "part:2"):
        write(tmp_path / name, f"{name}\tx\n")
    found = sources.parse([f"{tmp_path}/part:2:0.5", f"{tmp_path}/part:3"])
    assert [(one.name, one.weight) for one in found] == [
        (f"{tmp_path}/part:2", 0.5), (f"{tmp_path}/part", 3)
    ]  # fmt: skip
    (whole,) = sources.parse([f"{tmp_path}/part:2"])
    assert (whole.name, whole.weight) == (f"{tmp_path}/part:2", None)
    (pattern,) = sources.parse([f"{tmp_path}/p*"])
    assert [*pattern.rows(SETTINGS)] == [("part", "x"), ("part:2", "x")]
    assert sources.rates([whole, pattern], [900, 100]) == [1, 1]
    np.testing.assert_allclose(
        np.array(sources.rates(found, [900, 100])) * [900, 100], [143, 857], 1
    )


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


def test_a_full_disk_is_named_by_its_file(tmp_path):
    with pytest.raises(RunError, match="Cannot write /dev/full: No space left"):
        UniquePairs(Path("/dev/full"), [[("um", "one")]], Rules())
    tokenizer = SubwordTokenizer.learn(["um one"] * 9, 270)
    (tmp_path / "target.values").symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"Cannot write .*target\.values: No space left"):
        store.write_ids(tmp_path, iter([(0, "um", "one")]), (tokenizer, tokenizer))


def test_tags_and_weights_of_corpora(tmp_path):
    paths = tmp_path / "a.tsv", tmp_path / "b.tsv"
    for path, line in zip(paths, ("gato {}\tcat {}\n", "rato {}\trat {}\n"), strict=True):
        path.write_text("".join(line.format(i, i) for i in range(50)))
    data = (f"{paths[0]}:1", f"{paths[1]}:3")
    settings = TrainingConfig(data=data, tag=(f"{paths[1]}=<b>",), vocab_size=300).resolved()
    found, tokenizers = encode(settings, tmp_path / "encoded")
    texts = texts_of(found.sides[0], tokenizers[0])
    assert all(text.startswith("gato ") for text in texts[: found.parts[0]])
    assert all(text.startswith("<b> rato ") for text in texts[found.parts[0] :])
    for source, _ in found.held_out["validation"]:
        assert source.startswith(("gato ", "<b> rato "))
    batches = make_batches(settings, TranslationTask(settings, tokenizers), found)
    first, second = batches.parts
    assert second.rate * (second.end - second.begin) == pytest.approx(
        3 * first.rate * (first.end - first.begin)
    )
