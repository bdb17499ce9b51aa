"""Measures engines in turn, each in its own processes, and keeps the measured cells."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import decode_engines as engines
import numpy as np

HERE = Path(__file__).parent
CLOSE, CONTENDERS = 1.1, 2  # which settings take further turns: how near the best, how many
QUIET, ATTEMPTS = 0.25, 4  # cores that others may use; Linux always lets them have a twentieth
SHORT, LONG = (0.3, 0.8), (0.8, 1.6)  # seconds of latency and throughput: first pass, turns


class Row(NamedTuple):
    """What is measured: a size and beam width, latency or throughput, sentences of a request."""

    size: str
    beams: int
    mode: str
    batch: int

    def __str__(self):
        search = "greedy" if self.beams == 1 else f"{self.beams} beams"
        each = "1 sentence" if self.batch == 1 else f"{self.batch} sentences"
        return f"{self.size}, {search}, {each}, {self.mode}"


class Process:
    """One or more copies of an engine in processes of their own; see decode_process.py."""

    def __init__(self, setting, size, folder, exclusive=None):
        fields = json.dumps(setting._asdict())
        command = [sys.executable, HERE / "decode_process.py", setting.engine, fields, size, folder]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **setting.environment()}
        self.exclusive = exclusive
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed with the process
        begin = exclusive.timing([], spin=False) if exclusive else contextlib.nullcontext()
        with begin:
            self.copies = [
                subprocess.Popen(
                    list(map(str, command)), env=environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=self.log, text=True,
                )
                for _ in range(setting.copies)
            ]  # fmt: skip

    def __enter__(self):
        return self

    def __call__(self, **ask):
        """Asks all copies at once and returns their answers."""
        if self.exclusive:
            pids = [copy.pid for copy in self.copies]
            with self.exclusive.timing(pids, spin=ask["do"] != "warm"):
                return self._asked(ask)
        return self._asked(ask)

    def _asked(self, ask):
        for copy in self.copies:
            with contextlib.suppress(BrokenPipeError):  # its log says more
                copy.stdin.write(json.dumps(ask) + "\n")
                copy.stdin.flush()
        return [self._answer(copy) for copy in self.copies]

    def _answer(self, copy):
        for line in copy.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        self.log.seek(0)
        raise RuntimeError(f"the engine ended: {self.log.read()[-2000:]}")

    def others(self):
        """Processor seconds since the start of the machine, without those of the copies."""
        stat = Path("/proc/stat")
        if not stat.exists():
            return 0.0
        user, nice, system, _, _, *interrupts = map(int, stat.read_text().split()[1:9])
        ours, spinners = 0, self.exclusive.spinners if self.exclusive else []
        for copy in [*self.copies, *spinners]:
            fields = Path(f"/proc/{copy.pid}/stat").read_text().rsplit(")", 1)[1].split()
            ours += int(fields[11]) + int(fields[12])
        return (user + nice + system + sum(interrupts) - ours) / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *error):
        for copy in self.copies:
            copy.kill()  # it has nothing to save
            copy.wait()
            copy.stdin.close()
            copy.stdout.close()
        self.log.close()


class Results:
    """The measured cells, {(row, setting): {"turns": {turn: value}, ...}}, kept in a file."""

    def __init__(self, path=None, keep=None):
        self.path, self.cells, self.operations, self.exclusive = path, {}, {}, False
        if path and path.exists():
            found = json.loads(path.read_text())
            self.operations, self.exclusive = found["operations"], found["exclusive"]
            for cell in found["cells"]:
                row = Row(*(cell[name] for name in Row._fields))
                if keep(row, cell["engine"]):
                    kind = type(engines.ENGINES[cell["engine"]][0])
                    self.cells[row, kind(**cell["setting"])] = cell

    def add(self, row, setting, turn, value, **more):
        fields = {**row._asdict(), "engine": setting.engine, "column": setting.column,
                  "setting": setting._asdict(), "turns": {}}  # fmt: skip
        cell = self.cells.setdefault((row, setting), fields)
        cell["turns"][str(turn)] = value
        cell.update(more)

    def has(self, row, setting, turn):
        return str(turn) in self.cells.get((row, setting), {"turns": {}})["turns"]

    def best(self, row, column):
        """The best value of the first pass, or None."""
        found = [
            cell["turns"]["0"]
            for (other, _), cell in self.cells.items()
            if other == row and cell["column"] == column and "0" in cell["turns"]
        ]
        return (min if row.mode == "latency" else max)(found, default=None)

    def contenders(self, row, setting):
        """Whether the setting takes further turns at a row: it is among the best of its column;
        of 4 sentences, which the first pass leaves out, the best of 1 or of 32."""
        if ranking := self._ranking(row, setting.column):
            return setting in ranking[:CONTENDERS]
        ends = [row._replace(batch=batch) for batch in (1, 32)]
        return any(setting in self._ranking(end, setting.column)[:1] for end in ends)

    def _ranking(self, row, column):
        """The settings of a column that are close to its best in the first pass, best first."""
        found = [
            (cell["turns"]["0"] if row.mode == "latency" else 1 / cell["turns"]["0"], i, setting)
            for i, ((other, setting), cell) in enumerate(self.cells.items())
            if other == row and cell["column"] == column and "0" in cell["turns"]
        ]
        best = min(found, default=(0,))[0]
        return [setting for value, _, setting in sorted(found) if value <= CLOSE * best]

    def write(self):
        """One cell a line; a run that is killed leaves what was there or what is new."""
        if not self.path:
            return
        lines = ",\n".join(json.dumps(cell) for cell in self.cells.values())
        about = f'"operations": {json.dumps(self.operations)},\n'
        about += f'"exclusive": {json.dumps(self.exclusive)},\n'
        self.path.parent.mkdir(exist_ok=True)
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(f'{{{about}"cells": [\n{lines}\n]}}\n')
        unfinished.replace(self.path)


def turn(results, setting, rows, number, folder, exclusive=None):
    """Measures the rows of one size that are still to be done, in one new process."""
    rows = [row for row in rows if not results.has(row, setting, number)]
    if not rows:
        return
    seconds = dict(zip(("latency", "throughput"), LONG if number else SHORT, strict=True))
    reference = {}
    with Process(setting, rows[0].size, folder, exclusive) as ask:
        for row in rows:
            more = {}
            if (row.beams, row.batch) not in reference:
                first = ask(do="warm", batch=row.batch, beams=row.beams)[0]
                reference[row.beams, row.batch] = first
                more = {"first_s": first["first_s"], **same(setting, row, first["ids"], folder)}
            best = None if number else results.best(row, setting.column)
            question = {
                "do": row.mode, "batch": row.batch, "beams": row.beams,
                "seconds": seconds[row.mode], "callers": callers(setting),
                "best": best and best / setting.copies,
            }  # fmt: skip
            answers, more["others"] = undisturbed(ask, question)
            value = sum(answer["value"] for answer in answers)
            results.add(row, setting, number, value, **more)
            others = f" ({more['others']:.2f} cores busy beside it)" * (more["others"] > QUIET)
            print(f"turn {number}, {setting.column}, {setting}: {row}: {value:.4g}{others}")
            sys.stdout.flush()


def undisturbed(ask, question):
    """The answers, and how many cores other processes kept busy meanwhile: asked again, a few
    times, while that is more than next to nothing."""
    for attempt in range(ATTEMPTS):
        start, before = time.perf_counter(), ask.others()
        answers = ask(**question)
        others = (ask.others() - before) / (time.perf_counter() - start)
        if others <= QUIET:
            break
        time.sleep(attempt)
    return answers, round(others, 3)


def callers(setting):
    """The callers of each copy: two in all, but one for a PyTorch that has two threads."""
    alone = setting.copies > 1 or (setting.engine == "marian" and setting.threads > 1)
    return 1 if alone else 2


def same(setting, row, ids, folder):
    """The share of tokens that equal those of our plain float32 graph, where weights are ours."""
    if row.batch != 32 or setting.engine in ("marian", "kerashub"):
        return {}
    reference = np.load(Path(folder) / f"{row.size}-{row.beams}-{engines.TOKENS}.npy")
    return {"same": float((np.array(ids) == reference).mean())}


def rows_of(setting, size, all_beams, batches, modes):
    """The rows at which a setting is measured."""
    several = setting.copies > 1  # nothing to gain for a lone request
    useless = setting.engine == "marian" and setting.threads == 1 and not several
    return [
        Row(size, beams, mode, batch)
        for beams in all_beams
        for mode in modes
        for batch in batches
        if not (several and mode == "latency")
        and not (useless and mode == "throughput")
        and not (mode == "throughput" and batch == 4)
    ]
