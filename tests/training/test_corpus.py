"""The corpus: what is read, what is refused and where, what is dropped and how often."""

import bz2
import gzip
import hashlib
import itertools
import lzma
import unicodedata
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from backports import zstd
from hypothesis import strategies as st

from keras_tfmr import SubwordTokenizer
from training.command.disk import RunError
from training.corpus import held_out, sources, store, workers
from training.corpus import read as reading
from training.corpus.filter import REASONS, Cleaner, Rules, summary
from training.corpus.read import in_memory
from training.corpus.sources import Corpus
from training.corpus.unique import UniquePairs
from training.data import encode, make_batches
from training.settings.training_config import TrainingConfig
from training.tasks import TranslationTask

PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(PACKERS.get(path.suffix.lower(), bytes)(content))
        return path

    return write


def read_pairs(source, target="", **options):
    return held_out.read_pairs([Corpus(str(source), aligned=str(target))], **options)


@pytest.mark.parametrize("ending", ["", ".GZ", ".bz2", ".xz", ".zst"])
def test_reads_aligned_files(write, ending):
    source = write("train.pt" + ending, "\ufeffOlá.\r\n\tSim.\r\n")
    target = write("train.en" + ending, "Hello.\nYes,\tyes.")
    corpus = read_pairs(source, target)
    assert corpus.pairs == [("Olá.", "Hello."), ("Sim.", "Yes, yes.")]
    assert [file.path for file in corpus.files] == [str(source), str(target)]
    assert [file.lines for file in corpus.files] == [2, 2]
    assert corpus.files[0].sha256 == hashlib.sha256(source.read_bytes()).hexdigest()


def test_drops_are_counted(write):
    decomposed = unicodedata.normalize("NFD", "pão")
    rows = ["pão\tbread", f" {decomposed} \tbread", "pão\tloaf"]
    rows += ["\tempty", "vazio\t ", "nulo\t\0", "a\t" + "b" * 1001]
    corpus = read_pairs(write("pairs.tsv", "\n".join(rows)))
    assert corpus.pairs == [("pão", "bread"), ("pão", "loaf")]
    assert corpus.dropped == {"empty": 3, "long": 1, "duplicate": 1}
    for words in ("3 with an empty side", "1 over-long", "1 duplicate"):
        assert words in summary(corpus.dropped)
    long = read_pairs(write("pairs.tsv", "\n".join(rows)), rules=Rules(max_characters=1001))
    assert ("a", "b" * 1001) in long.pairs


def test_bad_files_are_refused_by_name_and_line(write):
    for content, message in (
        ("a\tb\nno tab\n", r"bad\.tsv, line 2: expected .* found 1 column: 'no tab'"),
        ("a\tb\tc\n", r"bad\.tsv, line 1: expected .* found 3 columns"),
        (b"a\tb\nc\t\xff\n", r"bad\.tsv, line 2: not UTF-8 at byte 2 of the line \(0xff\)"),
        ("", r"bad\.tsv: the file is empty"),
        ("\ufeff", r"bad\.tsv: the file is empty"),
        ("\t\n", r"bad\.tsv: no pair is left of 1 lines"),
    ):
        with pytest.raises(ValueError, match=message):
            read_pairs(write("bad.tsv", content))


def test_no_more_is_read_than_is_asked_for(write, monkeypatch):
    monkeypatch.setattr(reading, "LINES", 2)
    path = write("pairs.tsv", "a\tb\na\tb\nc\td\ne\tf\ng\n")
    assert read_pairs(path, most=3).pairs == [("a", "b"), ("c", "d"), ("e", "f")]
    assert read_pairs(path, most=2).pairs == [("a", "b"), ("c", "d")]


def test_unequal_files_are_refused(write):
    long, short = write("long", "a\nb\nc\n"), write("short", "a\nb\n")
    for paths in ((long, short), (short, long)):
        with pytest.raises(ValueError, match=r"short ends after line 2, but .*long has a line 3"):
            read_pairs(*paths)


@pytest.mark.parametrize(
    "ending, kind", [(".gz", "gzip"), (".bz2", "bzip2"), (".xz", "xz"), (".zst", "zstd")]
)
def test_a_broken_archive_is_refused(write, ending, kind):
    path = write("pairs.tsv" + ending, "".join(f"um {i}\tone {i}\n" for i in range(1000)))
    whole = path.read_bytes()
    path.write_bytes(2 * whole)  # two of them are one, too
    assert read_pairs(path).dropped["duplicate"] == 1000
    # Cut short, and with damage beyond the header, where only the inflation notices.
    for content in (whole[:-12], whole[:20] + b"\xff" * 180 + whole[200:], b"um\tone\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"pairs\.tsv{ending}: not a whole {kind} file"):
            read_pairs(path)


def pile_of(tmp_path, *corpora, **rules):
    blocks = [in_memory(pairs) for pairs in corpora]
    return unique_of(tmp_path, blocks, Rules(**rules))


def unique_of(tmp_path, blocks, rules):
    return UniquePairs(tmp_path / "pile", blocks, Cleaner(rules), list(range(len(blocks))))


def read(pile):
    return [pair[:2] for pair in pile.read(np.flatnonzero(pile.kept))]


def test_the_first_of_equal_pairs_is_kept(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    pairs = [(f"pt {a}", f"en {b}") for a, b in draw.integers(0, 20, [2000, 2])]
    monkeypatch.setattr(reading, "LINES", 64)  # 32 blocks
    pile = pile_of(tmp_path, pairs[:900], pairs[900:])
    assert read(pile) == list(dict.fromkeys(pairs)) and len(pile) == len(set(pairs))
    assert pile.dropped["duplicate"] == 2000 - len(pile) and pile.lines == 2000
    parts = [part for *_, part in pile.read(np.flatnonzero(pile.kept))]
    assert sum(parts) == len(pile) - len(set(pairs[:900]))


def encoded_of(folder, rows, **settings):
    """A corpus of these rows, encoded in `folder`; with its tokenizers."""
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
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


def test_many_processes_write_what_one_does(tmp_path, monkeypatch):
    pairs = [(f"gato {i} preto", f"black cat {i}") for i in range(400)]
    monkeypatch.setattr(reading, "LINES", 30)
    stores = []
    for alone in (10**6, 2):
        monkeypatch.setattr(workers, "ALONE", alone)
        encoded_of(tmp_path, pairs)
        names = (*store.ARRAYS, store.INDEX)
        stores.append([(tmp_path / "encoded" / name).read_bytes() for name in names])
    assert stores[0][:-1] == stores[1][:-1]


def test_an_error_of_another_process_names_its_line(tmp_path, monkeypatch):
    (tmp_path / "bad.tsv").write_text("a\tb\n" * 100 + "a b\n")
    monkeypatch.setattr(reading, "LINES", 10)
    monkeypatch.setattr(workers, "ALONE", 1)
    with pytest.raises(RunError, match=r"bad\.tsv, line 101: expected"):
        unique_of(tmp_path, [reading.read_blocks([tmp_path / "bad.tsv"], [])], Rules())


def test_a_full_disk_is_named_by_its_file(tmp_path):
    full = Path("/dev/full")
    with pytest.raises(RunError, match="Cannot write /dev/full: No space left"):
        UniquePairs(full, [in_memory([("um", "one")])], Cleaner(Rules()), [""])
    unique = pile_of(tmp_path, [("um", "one")])
    tokenizer = SubwordTokenizer.learn(["um one"] * 9, 270)
    (tmp_path / "target.values").symlink_to(full)
    with pytest.raises(RunError, match=r"Cannot write .*target\.values: No space left"):
        store.write(tmp_path, unique, (tokenizer, tokenizer), {}, [])


def test_patterns_name_many_files(write):
    for number in range(3):
        path = write(f"part-{number}.tsv", f"um {number}\tone {number}\n")
    source = sources.parse([str(path.parent / "part-*.tsv")])[0]
    read = []
    texts = [block.texts[0] for block in source.blocks("train", read)]
    assert texts == [f"um {number}\tone {number}\n".encode() for number in range(3)]
    assert [file.path for file in read] == [str(path.parent / f"part-{n}.tsv") for n in range(3)]


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


def test_weights_set_the_shares():
    assert sources.rates(sources.parse(["a.tsv", "b.tsv"]), [900, 100]) == [1, 1]
    rates = sources.rates(sources.parse(["a.tsv:3", "b.tsv:1"]), [900, 100])
    np.testing.assert_allclose(np.array(rates) * [900, 100], [750, 250])


def test_a_file_may_be_called_like_a_name_with_a_weight(tmp_path):
    for name in ("part", "part:2"):
        (tmp_path / name).touch()
    found = sources.parse([f"{tmp_path}/part:2:0.5", f"{tmp_path}/part:3"])
    names = [(one.name.removeprefix(f"{tmp_path}/"), one.weight) for one in found]
    assert names == [("part:2", 0.5), ("part", 3)]
    (whole,) = sources.parse([f"{tmp_path}/part:2"])
    assert (whole.name, whole.weight) == (f"{tmp_path}/part:2", None)


def test_tags_stand_before_the_sources(tmp_path):
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
    rules = Rules(filters=(name,), languages=("pt", "en")).measured_on(GOOD)
    pile = unique_of(tmp_path, [in_memory([*GOOD, bad])], rules)
    assert read(pile) == GOOD and pile.dropped[name] == 1
    assert f"1 {REASONS[name]}" in summary(pile.dropped)
    assert len(pile_of(tmp_path, [*GOOD, bad])) == len(GOOD) + 1  # unless asked for


LINE_TEXT = st.text(
    st.characters(exclude_characters="\n\r\t", exclude_categories=["Cs"]), max_size=9
)


def can_be_seen(text):
    """Whether a character is neither a space nor a control, format or unassigned one."""
    return any(unicodedata.category(char)[0] not in "CZ" for char in text)


@hypothesis.given(st.lists(st.tuples(LINE_TEXT, LINE_TEXT), min_size=1, max_size=30))
@hypothesis.settings(deadline=None, max_examples=60)
def test_any_text_is_read_as_it_was_written(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("any") / "pairs.tsv"
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode())
    expected = [tuple(unicodedata.normalize("NFC", s).strip() for s in pair) for pair in pairs]
    expected = list(dict.fromkeys(pair for pair in expected if all(map(can_be_seen, pair))))
    if expected and not pairs[0][0].startswith("\ufeff"):
        assert read_pairs(path).pairs == expected


@hypothesis.given(st.binary(max_size=200))
@hypothesis.settings(deadline=None, max_examples=100)
def test_any_bytes_are_read_or_refused_by_name(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "pairs.tsv"
    path.write_bytes(content)
    for paths in ((path,), (path, path)):  # of two columns, and of two aligned files
        try:
            corpus = read_pairs(*paths)
        except RunError as error:
            assert str(error).startswith(str(path))
        else:
            for pair in corpus.pairs:
                assert len(pair) == 2 and all(pair)
                assert all(side == side.strip() and "\t" not in side for side in pair)
