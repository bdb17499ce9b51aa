"""The load script against a stub, and against functions whose times are known."""

import re
import time

import pytest

from keras_tfmr.client import ServingError
from serving import load


def test_callers_ask_at_once_and_failures_are_counted():
    asked = []

    def ask(texts):
        asked.append(texts)
        time.sleep(0.02)
        if texts == ["c", "a"]:
            raise ServingError("no", "UNAVAILABLE")

    row = load.measured(ask, ["a", "b", "c"], size=2, callers=4, seconds=0.3)
    assert {*map(tuple, asked)} == {("a", "b"), ("c", "a"), ("b", "c")}
    assert row["errors"] == {"UNAVAILABLE": asked.count(["c", "a"])}
    answered = len(asked) - asked.count(["c", "a"])
    assert answered * 2 / 0.6 < row["rate"] < answered * 2 / 0.3, "of some 15 requests per caller"
    assert 20 <= row["p50"] <= row["p95"] <= row["p99"]


def test_the_command_prints_a_table_and_draws_it(address, tmp_path, capsys):
    data, picture = tmp_path / "texts.tsv", tmp_path / "load.png"
    data.write_text("um gato\ta cat\n\n dois \n", encoding="utf-8")
    words = [f"--data={data}", "--callers", "1", "3", "--texts", "1", "2", "--seconds=0.1"]
    assert load.main([*words, f"--server={address}", f"--plot={picture}"]) == 0
    header, _, *lines = capsys.readouterr().out.splitlines()
    assert header.startswith("| texts a request | callers | texts/s |")
    cells = [re.findall(r"[^| ]+", line) for line in lines]
    assert [line[:2] for line in cells] == [["1", "1"], ["1", "3"], ["2", "1"], ["2", "3"]]
    assert all(float(line[2]) > 0 and line[-1] == "0" for line in cells)
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--server=127.0.0.1:9"], 3, "refused"),
        (["--cert=x"], 2, "--key"),
        (["--data=none"], 2, "none"),
        (["--seconds=nan"], 2, "--seconds: must be from 0.1. Received: nan"),
        (["--callers", "1", "0"], 2, "from 1. Received: 0"),
    ],
)
def test_what_cannot_be_measured_is_said(address, tmp_path, capsys, words, status, said):
    (tmp_path / "texts").write_text("um\n")
    try:
        found = load.main([f"--server={address}", f"--data={tmp_path / 'texts'}", *words])
    except SystemExit as end:
        found = end.code
    assert found == status and said in capsys.readouterr().err
