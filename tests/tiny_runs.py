"""Commands that train on a toy corpus: numbers, and the same numbers in the reverse order."""

import contextlib
import csv
import gzip
import itertools
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from training import phrasebook, train_pt_en, train_text
from training.corpus import read

ROOT = Path(__file__).resolve().parents[1]
WORDS = ("um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito", "nove", "dez")
# Options override settings of a file; a test that needs others adds NAME=VALUE.
TINY = ("--config", str(ROOT / "tests" / "data" / "tiny_run.yaml"), "--set", "encoder_layers=1")


def write_pairs(path, count=400, words=(2, 9), translate=reversed):
    """A file of pairs to learn from, of so many words."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            text = draw.choices(WORDS, k=draw.randint(*words))
            file.write(f"{' '.join(text)}\t{' '.join(translate(text))}\n")
    return path


def small_phrasebook(monkeypatch, folder, to_learn, others):
    """Runs without `--data` read a folder that has so many lines of the phrasebook's files."""
    folder.mkdir()
    for path in phrasebook.FOLDER.glob("*.tsv*"):
        count = to_learn if path.stem in ("train.tsv", "pairs") else others
        content = "".join(f"{line}\n" for line in itertools.islice(read.lines(path), count))
        pack = gzip.compress if path.suffix == ".gz" else bytes
        (folder / path.name).write_bytes(pack(content.encode()))
    monkeypatch.setattr(phrasebook, "FOLDER", folder)


def train(*words, text=False):
    """Runs the command in this process; its exit status."""
    script = train_text if text else train_pt_en
    return script.main([str(word) for word in words])


def start(*words, script=("training/train_pt_en.py",), **environment):
    """Runs the command in a process of its own, or a program: ("-c", its text)."""
    return subprocess.Popen(
        [sys.executable, *script, *map(str, words)], cwd=ROOT, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finished(process, status=0):
    """Waits for a process; its output."""
    output = process.communicate(timeout=600)[0]
    assert process.returncode == status, output
    return output


def history(run):
    """The rows of history.csv."""
    with (run / "history.csv").open() as file:
        return list(csv.DictReader(file))


def last_arrays(run):
    """{name: array} of the newest checkpoint, without its meta data."""
    with np.load(sorted((run / "checkpoints").glob("step-*.npz"))[-1]) as archive:
        return {name: archive[name] for name in archive.files if name != "meta"}


def free_ports(count):
    """Ports of loopback that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
