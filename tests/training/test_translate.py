"""Whole files translated: as the translator does, line for line, whatever kills the process."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from text_models import LINES, tiny_translator, write_run

from keras_tfmr.signatures.answers import Translation
from keras_tfmr.text.spans import SLOTS
from serving import server
from training import translate
from training.translating import callers, options, streams, windows

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [" ".join(LINES[i % 6].split()[: 1 + i % 5]) for i in range(60)]
FOLDERS = ("benchmarks", "keras_tfmr", "serving", "training")
LIMITS = ["--max_length", "12", "--max_source_length", "24"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with a tiny model of random weights."""
    return write_run(tmp_path_factory.mktemp("run"), num_beams=3, length_penalty=0.6)


@pytest.fixture(scope="module")
def translator():
    """The run's `Translator`, of the two best of each text."""
    return tiny_translator(length_penalty=0.6, num_return_sequences=2)


@pytest.fixture(scope="module")
def expected(translator):
    return translator.translate_nbest(TEXTS)


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """Each model is loaded and traced once for all commands."""
    load, loaded = callers.load, {}

    def cached(options):
        names = ("preset", "nbest", "sample", "max_length", "protect", "weights")
        key = str([getattr(options, name) for name in names])
        loaded[key] = loaded.get(key) or load(options)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(callers, "load", cached)
        yield


@pytest.fixture
def translated(run, tmp_path, monkeypatch):
    """`translated(text, *words)` is what the command writes for a file."""
    monkeypatch.setattr(windows, "WINDOW", 16)

    def translated(text, *words, ending=".txt"):
        source, target = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
        write(source, text)
        command = f"{run} --input {source} --output {target} --batch_size 4 --overwrite".split()
        assert translate.main([*command, *LIMITS, *words]) == 0
        assert not list(tmp_path.glob("*.progress"))
        return read(target)

    return translated


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACKERS[path.suffix](text.encode()))


def read(path):
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
    return unpack.get(path.suffix, bytes)(path.read_bytes()).decode()


def flat(text):
    return re.sub(r"\s*[\t\r\n]\s*", " ", text).strip()


def joined(lines):
    return "".join(f"{line}\n" for line in lines)


PACKERS = {".txt": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("ending", PACKERS)
def test_a_file_of_any_form_is_translated_as_by_the_translator(translated, expected, ending):
    found = translated("\ufeff" + joined(TEXTS), ending=ending)  # and without its byte order mark
    assert found == joined(flat(best[0].text) for best in expected)


def test_a_damaged_file_is_named(run, tmp_path, capsys):
    source, whole = tmp_path / "in.gz", gzip.compress(os.urandom(999) + b"\n" * 9)
    words = [str(run), "--input", str(source), "--output", str(tmp_path / "out"), *LIMITS]
    for damaged in (whole[:-12], whole[:20] + b"\xff" * 180 + whole[200:]):
        source.write_bytes(damaged)
        assert translate.main([*words, "--overwrite"]) == 1
        assert "in.gz: not a whole gzip file" in capsys.readouterr().err


def test_the_input_is_never_the_output(tmp_path):
    source = tmp_path / "io.txt"
    source.write_text("bom dia")
    for link in ("link", "b.progress"):
        (tmp_path / link).symlink_to(source)
    os.link(source, tmp_path / "a.1-of-2.txt")
    given = ["--input", str(source)]
    for name, words in (
        ("io.txt", []), ("io.txt", given), ("link", given), ("b", given),
        ("a.txt", [*given, "--shard", "1/2"]),
    ):  # fmt: skip
        command = [sys.executable, "training/translate.py", "run", "--overwrite", *words]
        with source.open() as stdin:
            command += ["--output", str(tmp_path / name)]
            ended = subprocess.run(command, cwd=ROOT, stdin=stdin, capture_output=True, text=True)
        assert ended.returncode == 2 and "--output must not be the input" in ended.stderr
    assert source.read_text() == "bom dia"


def test_columns_are_kept_or_become_pairs_to_learn_from(translated, expected):
    lines = [*(f"{i}\t{text}\tend" for i, text in enumerate(TEXTS)), "", "no column"]
    *found, empty, no_column = translated(joined(lines), "--column", "2", "--scores").splitlines()
    assert (empty, no_column) == ("\t0.0000", "no column\t0.0000")
    for i, line in enumerate(found):
        number, text, end, score = line.split("\t")
        assert (number, text, end) == (str(i), flat(expected[i][0].text), "end")
        assert float(score) == pytest.approx(expected[i][0].score, abs=1e-3)
    *pairs, empty, no_column = translated(joined(lines), "--column", "2", "--pairs").splitlines()
    assert empty == no_column == "\t"
    for text, best, pair in zip(TEXTS, expected, pairs, strict=True):
        assert pair == f"{text}\t{flat(best[0].text)}"


def test_the_n_best_of_each_line(translated, expected):
    found = [line.split(" ||| ") for line in translated(joined(TEXTS), "--nbest", "2").splitlines()]
    wanted = [(i, h) for i, best in enumerate(expected, 1) for h in best]
    assert [(int(n), text) for n, text, _ in found] == [(i, flat(h.text)) for i, h in wanted]
    for (*_, score), (_, hypothesis) in zip(found, wanted, strict=True):
        assert float(score) == pytest.approx(hypothesis.score, abs=1e-3)


def test_samples_follow_the_seed_alone(translated):
    text = joined(TEXTS)
    first = translated(text, "--sample", "--threads", "1")
    assert translated(text, "--sample", "--threads", "2") == first
    other = translated(text, "--sample", "--seed", "2")
    assert sum(a != b for a, b in zip(first.splitlines(), other.splitlines(), strict=True)) > 30


def test_standard_streams(run, monkeypatch, expected):
    text = "\r\n".join(TEXTS[:5]).encode()  # and no end of the last line
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=out))
    assert translate.main([str(run), *LIMITS]) == 0
    assert out.getvalue().decode() == joined(flat(h[0].text) for h in expected[:5])


def test_a_killed_process_goes_on_where_it_was(run, tmp_path, expected, monkeypatch, capsys):
    """In windows of 32 lines; none of the lines is lost, and none is written twice."""
    source, target = tmp_path / "in.txt", tmp_path / "out.txt.gz"
    count = 32 * 20
    source.write_text(joined(TEXTS[i % 60] for i in range(count)))
    words = [str(run), "--input", str(source), "--output", str(target), *LIMITS]
    code = "from training.translating import windows; windows.WINDOW = 32\n"
    code += "from training import translate; translate.main()"
    process = subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT)
    progress = Path(f"{target}.progress")
    while not (progress.exists() and json.loads(progress.read_text())["lines"]):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = json.loads(progress.read_text())
    assert 0 < before["lines"] < count
    with target.open("ab") as file:
        file.write(b"half of a li")  # as a kill within a write leaves it
    certain = target.read_bytes()[: before["bytes"]]
    monkeypatch.setattr(windows, "WINDOW", 32)
    assert translate.main([*words, "--scores"]) == 1
    assert "was started by another command" in capsys.readouterr().err
    target.write_bytes(certain[:-1])
    assert translate.main(words) == 1
    assert "has lost what was written" in capsys.readouterr().err
    target.write_bytes(certain + b"half of a li")
    assert translate.main(words) == 0
    assert target.read_bytes().startswith(certain) and not progress.exists()
    assert read(target) == joined(flat(expected[i % 60][0].text) for i in range(count))
    assert translate.main(words) == 1
    assert "--overwrite" in capsys.readouterr().err


# The script, with a translator that sleeps for a minute over each batch after the first 64.
SLOW = """
import itertools, runpy, sys, time, types
from keras_tfmr.signatures.answers import Translation
seconds = itertools.chain([0] * 64, itertools.repeat(60))
def translate(texts, seed):
    time.sleep(next(seconds))
    return [[Translation(text.decode(), 0.0, False)] for text in texts]
slow = types.SimpleNamespace(callers=[translate] * 2, token_counts=lambda texts: [1] * len(texts))
own = types.SimpleNamespace(Callers=lambda options: slow)
sys.modules["training.translating.callers"] = own
runpy.run_path("training/translate.py", run_name="__main__")
"""


@pytest.mark.parametrize("stop, status", [("Ctrl-C", 130), ("closed pipe", 0)])
def test_it_ends_at_once_and_quietly(tmp_path, stop, status):
    source = tmp_path / "in.txt"
    source.write_text("a line of the text\n" * 20_000)
    words = [sys.executable, "-c", SLOW, "run", "--input", str(source), "--threads", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline() == b"a line of the text\n"
        begun = time.monotonic()
        if stop == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        assert process.wait(60) == status and time.monotonic() - begun < 30
        assert process.stderr.read() == b""


def test_cores_are_counted_on_any_system(monkeypatch):
    for name in ("sched_getaffinity", "process_cpu_count"):
        monkeypatch.delattr(os, name, raising=False)  # as on macOS
    assert options.parse_arguments("", ["run"]).threads == os.cpu_count()
    assert server.parse_arguments(["--model_base_path", "models"]).threads == os.cpu_count()
    pages = itertools.chain(*(ROOT.glob(f"{folder}/**/*.py") for folder in FOLDERS))
    counting = [page.name for page in pages if "len(os.sched_getaffinity" in page.read_text()]
    assert counting == ["compat.py"]


def test_no_more_is_read_than_is_under_way(monkeypatch):
    """What is in memory does not grow with the file: lines are read as windows are taken."""
    monkeypatch.setattr(windows, "WINDOW", 10)
    read = []

    def lines():
        for number in itertools.count():
            read.append(number)
            yield b"%d" % number

    upper = types.SimpleNamespace(
        callers=[lambda texts, seed: [text.upper() for text in texts]],
        token_counts=lambda texts: [1] * len(texts),
    )
    results = windows.translated(lines(), upper, lambda line: line, 4)
    for number in range(50):
        window, answers = next(results)
        assert window == answers == [b"%d" % i for i in range(10 * number, 10 * number + 10)]
        assert len(read) <= 10 * (number + 1 + windows.AHEAD)
    results.close()


def test_arguments_that_do_not_go_together(capsys):
    for words, message in (
        ("--sample --nbest 2", "--nbest cannot be given with --sample"),
        ("--nbest 4 --num_beams 2", "greater than --num_beams. Received: --nbest 4"),
        ("--nbest 2 --pairs", "--pairs cannot be given with --nbest"),
        ("--documents line --scores", "--scores cannot be given with --documents"),
        ("--shard 1/2", "--shard needs --input"),
        ("--shard 3/2", "invalid shard value: '3/2'"),
        ("--batch_size 0", "must be a whole number of 1 or more. Received: '0'"),
        ("--documents file", "needs two folders"),
        ("--documents file --batch_size 2", "--batch_size cannot be given with"),
        ("--documents file --input . --output setup.cfg", "needs two folders or two files"),
        ("--seed 3", "--seed has no effect without --sample"),
        ("--documents file --input . --output ./inside", "must be apart"),
        ("--documents paragraph --pairs", "--pairs cannot be given with --documents paragraph"),
        ("--documents paragraph --input a --output b --shard 1/2", "--shard has no"),
    ):
        with pytest.raises(SystemExit):
            options.parse_arguments("", ["run", *words.split()])
        assert message in capsys.readouterr().err


def test_parts_of_a_file_joined_are_the_file(tmp_path):
    file = tmp_path / "in.txt"
    for lines in ([], ["one"], ["", "a" * 50, "", *TEXTS, ""]):
        file.write_text(joined(lines))
        for count in (1, 2, 7, 200):
            read = []
            for index in range(1, count + 1):
                with streams.opened_input(file, (index, count)) as part:
                    read += part
            assert [line.decode() for line in read] == lines


def test_shards_are_written_once_under_names_in_order(run, tmp_path, expected, monkeypatch, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text(joined(TEXTS[:12]))
    words = [str(run), "--input", str(source), "--output", str(target), *LIMITS, "--shard"]
    for index, name in enumerate(["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"]):
        monkeypatch.setenv(name, str(index))
        assert translate.main([*words, "auto/2"]) == 0
        monkeypatch.delenv(name)
    parts = "".join(part.read_text() for part in sorted(tmp_path.glob("out.*-of-2.txt")))
    assert parts == joined(flat(best[0].text) for best in expected[:12])
    assert translate.main([*words, "2/2"]) == 0
    assert "is complete" in capsys.readouterr().err


@pytest.fixture(scope="module")
def one(translator):
    """The translation of a sentence of the documents."""
    return translator.translate([LINES[2]])[0]


def test_lines_are_translated_by_sentence_in_their_layout(translated, one):
    text = f"  {LINES[2]}  {LINES[2]}\n\n- {LINES[2]}\n\t{LINES[2]}\n"
    assert translated(text, "--documents") == text.replace(LINES[2], one)
    by_column = translated(text, "--documents", "--column", "2")
    assert by_column.splitlines()[2:] == [f"- {LINES[2]}", f"\t{one}"]


def test_a_translation_never_breaks_its_line():
    """Bytes of the vocabulary can spell a line end."""
    best, given = [Translation("a\nb", 0.0, False)], options.parse_arguments("", ["run"])
    for given.documents in (None, "line", "paragraph"):
        assert translate.formatted(b"x", best, 1, given) == b"a b\n"


def test_spans_and_terms_stand_in_the_lines_as_they_are(tmp_path, capsys):
    run = write_run(tmp_path / "run", SLOTS, num_beams=1, protect=["code"])
    source, terms = tmp_path / "in.txt", tmp_path / "terms.tsv"
    source.write_text("O gato usa `a  b` e #12.\n")

    def translated(*words):
        command = [str(run), "--input", str(source), "--output", str(tmp_path / "out.txt")]
        assert translate.main([*command, *LIMITS, "--overwrite", *words]) == 0
        return (tmp_path / "out.txt").read_text()

    assert translated().count("`a  b`") == 1 > translated().count("#12")
    assert translated("--protect", "code", "#[0-9]+").count("#12") == 1
    assert "`a  b`" not in translated("--protect", "none")
    terms.write_text("gato\tCAT & <dog>\n\nusa\tUSES\n")
    found = translated("--terms", str(terms))
    assert "CAT & <dog>" in found and "USES" in found and "`a  b`" in found
    plain = [str(write_run(tmp_path / "plain")), "--input", str(source), "--terms", str(terms)]
    assert translate.main(plain) == 1
    assert "translate_with_terms needs a model with slots" in capsys.readouterr().err
    for wrong in ("gato", "a\tb\na\tc", " \tb"):
        terms.write_text(f"x\ty\n{wrong}\n")
        assert translate.main([str(run), "--terms", str(terms), "--input", str(source)]) == 1
        assert re.search("terms.tsv, line [23]: expected TERM, a tab", capsys.readouterr().err)


def test_lines_of_a_paragraph_are_joined(translated, one):
    first, rest = LINES[2].split(" ", 1)
    text = f"  {LINES[2]} {first}  \n  {rest}\n\n \n{first}\r\n{rest}\r\n{LINES[2]}"
    assert translated(text, "--documents", "paragraph") == f"  {one} {one}\n\n\n{one} {one}\n"


def test_files_of_a_folder_are_translated_once(run, tmp_path, one, capsys):
    source, target = tmp_path / "in", tmp_path / "out"
    contents = {
        "a.txt": f"{LINES[2]} {LINES[2]}\r\n\r\n\t{LINES[2]}",
        "deep/er/b.txt": f"- {LINES[2]}\n" * 3,
        "empty.txt": "",
        "packed.txt.gz": f"{LINES[2]}\n",
    }
    for name, content in contents.items():
        write(source / name, content)
    words = [str(run), "--input", str(source), "--output", str(target), *LIMITS]
    words += ["--documents", "file"]
    assert translate.main([*words, "--shard", "1/2"]) == 0
    assert sorted(path.name for path in target.rglob("*.*")) == ["a.txt", "empty.txt"]
    (target / "a.txt").write_text("kept")
    assert translate.main(words) == 0
    assert "2 of 4 files" in capsys.readouterr().err
    assert (target / "a.txt").read_text() == "kept"
    assert translate.main([*words, "--overwrite"]) == 0
    for name, content in contents.items():
        assert read(target / name) == content.replace(LINES[2], one)
