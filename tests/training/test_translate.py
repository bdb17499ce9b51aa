"""Whole files translated: as the translator does, line for line, whatever kills the process."""

import gzip
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from translators import LINES, tiny_translator, write_run

from training import streams, translate

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [" ".join(LINES[i % 6].split()[: 1 + i % 5]) for i in range(60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with a tiny model of random weights."""
    return write_run(tmp_path_factory.mktemp("run"), num_beams=3, length_penalty=0.6)


@pytest.fixture(scope="module")
def expected():
    """What the `Translator` says: the two best of each text."""
    return tiny_translator(length_penalty=0.6, num_return_sequences=2).translate_nbest(TEXTS)


@pytest.fixture
def translated(run, tmp_path, monkeypatch):
    monkeypatch.setattr(translate, "WINDOW", 16)

    def translated(lines, *words, ending=".txt"):
        source, target = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
        content = "".join(f"{line}\n" for line in lines).encode()
        source.write_bytes(gzip.compress(content) if ending == ".gz" else content)
        status = translate.main(
            [str(run), "--input", str(source), "--output", str(target), "--max_length", "12",
             "--max_source_length", "24", "--batch_size", "4", *words]
        )  # fmt: skip
        assert status == 0 and not list(tmp_path.glob("*.progress"))
        content = target.read_bytes()
        content = gzip.decompress(content) if ending == ".gz" else content
        return content.decode().split("\n")[:-1]

    return translated


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("ending", [".txt", ".gz"])
def test_a_file_is_translated_as_by_the_translator(translated, expected, ending):
    assert translated(TEXTS, ending=ending) == [flat(best[0].text) for best in expected]


def test_columns_are_kept_and_scores_appended(translated, expected):
    lines = [f"{i}\t{text}\tend" for i, text in enumerate(TEXTS)]
    for i, line in enumerate(translated([*lines, "", "no column"], "--column", "2", "--scores")):
        if i == len(TEXTS):
            assert line.split("\t") == ["", "0.0000"]
        elif i > len(TEXTS):
            assert line.split("\t") == ["no column", "0.0000"]
        else:
            number, text, end, score = line.split("\t")
            assert (number, text, end) == (str(i), flat(expected[i][0].text), "end")
            assert float(score) == pytest.approx(expected[i][0].score, abs=1e-3)


def test_pairs_to_learn_from(translated, expected):
    lines = [f"{i}\t{text}\tend" for i, text in enumerate(TEXTS)]
    found = translated([*lines, "no column"], "--column", "2", "--pairs")
    wanted = [f"{text}\t{flat(best[0].text)}" for text, best in zip(TEXTS, expected, strict=True)]
    assert found == [*wanted, "\t"]


def test_the_n_best_of_each_line(translated, expected):
    found = [line.split(" ||| ") for line in translated(TEXTS, "--nbest", "2")]
    wanted = [(i, h) for i, best in enumerate(expected, 1) for h in best]
    assert [(int(n), text) for n, text, _ in found] == [(i, flat(h.text)) for i, h in wanted]
    for (*_, score), (_, hypothesis) in zip(found, wanted, strict=True):
        assert float(score) == pytest.approx(hypothesis.score, abs=1e-3)


def test_samples_follow_the_seed_alone(translated):
    first = translated(TEXTS, "--sample", "--threads", "1")
    assert translated(TEXTS, "--sample", "--threads", "3", "--overwrite") == first
    other = translated(TEXTS, "--sample", "--seed", "2", "--overwrite")
    assert sum(a != b for a, b in zip(first, other, strict=True)) > 30


def test_standard_streams(run, monkeypatch, expected):
    text = "\r\n".join(TEXTS[:5]).encode()  # and no end of the last line
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text)))
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(buffer=out))
    words = [str(run), "--max_length", "12", "--max_source_length", "24"]
    assert translate.main(words) == 0
    assert out.getvalue().decode().split("\n")[:-1] == [flat(h[0].text) for h in expected[:5]]


@pytest.mark.parametrize("ending", ["", pytest.param(".gz", marks=pytest.mark.slow)])
def test_a_killed_process_goes_on_where_it_was(run, tmp_path, ending, capsys):
    source, target = tmp_path / "in.txt", tmp_path / f"out.txt{ending}"
    window = translate.WINDOW
    lines = [f"{i} {TEXTS[i % 60]}" for i in range(2 * window + 100)]
    source.write_text("\n".join(lines) + "\n")
    words = [
        run, "--input", source, "--output", target, "--num_beams", "1", "--max_length", "6",
        "--batch_size", "64",
    ]  # fmt: skip
    words = list(map(str, words))
    command = [sys.executable, "training/translate.py", *words]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    progress = Path(f"{target}.progress")
    while not (progress.exists() and json.loads(progress.read_text())["lines"] >= window):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = json.loads(progress.read_text())
    assert window <= before["lines"] < len(lines)
    with target.open("ab") as file:
        file.write(b"half of a li")  # as a kill within a write leaves it
    certain = target.read_bytes()[: before["bytes"]]
    assert translate.main([*words, "--scores"]) == 1
    assert "was begun by another command" in capsys.readouterr().err
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    content = target.read_bytes()
    assert content.startswith(certain) and not progress.exists()
    content = gzip.decompress(content) if ending else content
    found = content.decode().split("\n")[:-1]
    translator = tiny_translator(
        num_beams=1, num_return_sequences=1, max_length=6, max_source_length=128
    )
    chosen = [*range(0, len(lines), 400), *range(window - 8, window + 12), len(lines) - 1]
    wanted = translator.translate([lines[i] for i in chosen])
    assert len(found) == len(lines) and [found[i] for i in chosen] == [flat(t) for t in wanted]
    assert translate.main(words) == 1
    assert "--overwrite" in capsys.readouterr().err


def test_batches_have_texts_with_similar_token_counts():
    """A text shorter than 0.6 of the longest ends a batch that is a quarter full."""
    counts = [3, 40, 9, 10, 5, 9, 20, 11, 10]
    batches = [[counts[row] for row in rows] for rows in translate.batches_of(counts, 4)]
    assert batches == [[40], [20], [11, 10, 10, 9], [9], [5, 3]]
    batches = [[counts[row] for row in rows] for rows in translate.batches_of(counts, 8)]
    assert batches == [[40, 20], [11, 10, 10, 9, 9], [5, 3]]
    assert translate.batches_of([], 4) == []


def test_no_more_is_read_than_is_under_way(monkeypatch):
    """What is in memory does not grow with the file: lines are read as windows are taken."""
    monkeypatch.setattr(translate, "WINDOW", 10)
    options = types.SimpleNamespace(column=1, batch_size=4, seed=1)
    read = []

    def lines():
        for number in itertools.count():
            read.append(number)
            yield b"%d" % number

    callers = [lambda texts, seed: [text.upper() for text in texts]]
    results = translate.translated(lines(), callers, lambda texts: [1] * len(texts), options)
    for number in range(50):
        window, found = next(results)
        assert window == found == [b"%d" % i for i in range(10 * number, 10 * number + 10)]
        assert len(read) <= 10 * (number + 1 + translate.AHEAD)
    results.close()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--sample", "--nbest", "2"], "leave out --nbest and --num_beams. Received: --nbest 2"),
        (
            ["--nbest", "4", "--num_beams", "2"],
            "greater than --num_beams. Received: --nbest 4",
        ),
        (["--column", "0"], "must be positive"),
        (["--nbest", "2", "--pairs"], "leave out --nbest. Received: --nbest 2"),
    ],
)
def test_arguments_that_do_not_go_together(words, message, capsys):
    with pytest.raises(SystemExit):
        translate.parse_arguments(["run", *words])
    assert message in capsys.readouterr().err


def test_a_folder_without_a_run_is_one_line(tmp_path, capsys):
    (tmp_path / "in").write_text("a\n")
    assert translate.main([str(tmp_path / "none"), "--input", str(tmp_path / "in")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert os.listdir(tmp_path) == ["in"]


def test_parts_of_a_file_joined_are_the_file(tmp_path):
    file = tmp_path / "in.txt"
    for lines in ([], ["one"], ["", "a" * 50, "", *TEXTS, ""]):
        file.write_text("".join(f"{line}\n" for line in lines))
        for count in (1, 2, 7, 200):
            read = []
            for index in range(1, count + 1):
                with streams.opened_input(file, (index, count)) as part:
                    read += part
            assert [line.decode() for line in read] == lines


def test_shards_are_written_once_under_names_in_order(run, tmp_path, monkeypatch, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in TEXTS[:12]))
    words = [str(run), "--input", str(source), "--max_length", "12", "--batch_size", "4"]
    assert translate.main([*words, "--output", str(target)]) == 0
    for index, name in enumerate(["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"]):
        monkeypatch.setenv(name, str(index))
        assert translate.main([*words, "--output", str(target), "--shard", "auto/2"]) == 0
        monkeypatch.delenv(name)
    parts = sorted(tmp_path.glob("out.*-of-2.txt"))
    assert "".join(part.read_text() for part in parts) == target.read_text()
    assert translate.main([*words, "--output", str(target), "--shard", "2/2"]) == 0
    assert "is complete" in capsys.readouterr().err
    for wrong in ("0/2", "3/2", "auto/2", "x"):
        with pytest.raises(SystemExit):
            translate.parse_arguments([*words, "--output", str(target), "--shard", wrong])


@pytest.fixture(scope="module")
def one(run):
    """The translation of a sentence of the documents."""
    return tiny_translator(length_penalty=0.6).translate([LINES[2]])[0]


LIMITS = ["--max_length", "12", "--max_source_length", "24"]


def test_lines_are_translated_by_sentence_in_their_layout(run, tmp_path, one):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text(f"  {LINES[2]}  {LINES[2]}\n\n- {LINES[2]}\n\t{LINES[2]}\n")
    words = [str(run), "--input", str(source), *LIMITS, "--documents"]
    assert translate.main([*words, "--output", str(target)]) == 0
    assert target.read_text() == f"  {one}  {one}\n\n- {one}\n\t{one}\n"
    assert translate.main([*words, "--output", str(target), "--column", "2", "--overwrite"]) == 0
    assert target.read_text().splitlines()[2:] == [f"- {LINES[2]}", f"\t{one}"]


def test_lines_of_a_paragraph_are_joined(run, tmp_path, one):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    first, rest = LINES[2].split(" ", 1)
    wrapped = f"  {LINES[2]} {first}  \n  {rest}\n\n \n{first}\r\n{rest}\r\n{LINES[2]}"
    source.write_text(wrapped, newline="")
    words = [str(run), "--input", str(source), "--output", str(target), *LIMITS]
    assert translate.main([*words, "--documents", "paragraph"]) == 0
    assert target.read_text() == f"  {one} {one}\n\n\n{one} {one}\n"


def test_files_of_a_folder_are_translated_once(run, tmp_path, one, capsys):
    source, target = tmp_path / "in", tmp_path / "out"
    contents = {
        "a.txt": f"{LINES[2]} {LINES[2]}\r\n\r\n\t{LINES[2]}",
        "deep/er/b.txt": f"- {LINES[2]}\n" * 3,
        "empty.txt": "",
        "packed.txt.gz": f"{LINES[2]}\n",
    }
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        packed = name.endswith(".gz")
        data = gzip.compress(content.encode()) if packed else content.encode()
        (source / name).write_bytes(data)
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
        data = (target / name).read_bytes()
        data = gzip.decompress(data) if name.endswith(".gz") else data
        assert data.decode() == content.replace(LINES[2], one)
    (source / "bad.gz").write_bytes(b"no gzip")
    assert translate.main(words) == 1
    assert "bad.gz is not a complete gzip file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["file"], "needs two folders"),
        (["file", "--input", ".", "--output", "./inside"], "must be apart"),
        (["paragraph", "--pairs"], "has no --pairs"),
        (["paragraph", "--input", "a", "--output", "b", "--shard", "1/2"], "--shard has no"),
        (["line", "--nbest", "2"], "has no --sample, --nbest"),
    ],
)
def test_kinds_of_documents_that_do_not_go_with_options(words, message, capsys):
    with pytest.raises(SystemExit):
        translate.parse_arguments(["run", "--documents", *words])
    assert message in capsys.readouterr().err
