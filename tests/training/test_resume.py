"""Stop and go on: a run that was killed again and again ends bit for bit like one that was not."""

import csv
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from training.run.checkpoints import Checkpoints, read

ROOT = Path(__file__).resolve().parents[2]
STEPS = 60
WORDS = ("um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito", "nove", "dez")


def write_corpus(path, count=400):
    """Numbers, and the same in the reverse order."""
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(count):
            words = draw.choices(WORDS, k=draw.randint(2, 9))
            file.write(f"{' '.join(words)}\t{' '.join(reversed(words))}\n")


def start(corpus, run, *more):
    """The real command, in its own process, with checkpoints after every update."""
    command = [
        sys.executable, "training/train_pt_en.py", "--data", corpus, "--run", run,
        "--vocab_size", "300", "--preset", "tiny", "--d_model", "16", "--encoder_layers", "1",
        "--decoder_layers", "1", "--dropout_rate", "0.2", "--tokens_per_batch", "192",
        "--steps", str(STEPS), "--warmup_steps", "10", "--evaluate_minutes", "0",
        "--evaluate_pairs", "8", "--beams", "2", "--checkpoint_minutes", "0", "--no_export", *more,
    ]  # fmt: skip
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def newest_step(run):
    paths = Checkpoints(run / "checkpoints").paths()
    return int(re.search(r"\d+", paths[-1].name).group()) if paths else 0


def interrupt(process, run, step, number):
    """Sends a signal as soon as a checkpoint of `step` or later exists; returns the output."""
    while newest_step(run) < step:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    assert newest_step(run) < STEPS, "it came too late"
    return output


def finished(process):
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    return output


def weights(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()]} if hasattr(item, "shape") else {})
        )
    return found


def history(run):
    with (run / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    times = ("minutes", "tokens_per_second")
    return [{k: v for k, v in row.items() if k not in times} for row in rows]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An uninterrupted run and an interrupted one, with all that the latter printed."""
    path = tmp_path_factory.mktemp("resume")
    corpus = path / "corpus.tsv"
    write_corpus(corpus)
    whole, broken = path / "whole", path / "broken"
    process = start(corpus, whole)
    outputs = []
    draw = random.Random(4)
    first, second = sorted(draw.sample(range(1, STEPS - 12), 2))
    print(f"interrupted after steps {first} and {second}")
    try:
        again = start(corpus, broken, "--overwrite")
        outputs.append(interrupt(again, broken, first, signal.SIGKILL))
        newest = Checkpoints(broken / "checkpoints").paths()[-1]
        newest.write_bytes(newest.read_bytes()[: -random.Random(1).randint(1, 5000)])
        again = start(corpus, broken, "--overwrite")
        outputs.append(interrupt(again, broken, max(second, first + 1), signal.SIGINT))
        outputs.append(str(again.returncode))
        outputs.append(finished(again := start(corpus, broken)))
        finished(process)
    finally:
        for child in (process, again):
            child.kill()
    return corpus, whole, broken, outputs


def test_weights_optimizer_and_generators_are_bit_identical(folders):
    _, whole, broken, _ = folders
    paths = [Checkpoints(run / "checkpoints").paths()[-1] for run in (whole, broken)]
    (arrays, _), (others, _) = map(read, paths)
    assert arrays.keys() == others.keys()
    kinds = {"model", "momentum", "velocity", "average", "updates"}
    assert {name.split("/")[0] for name in arrays} == kinds
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    for file in ("best.weights.h5", "last.weights.h5"):
        one, other = weights(whole / "weights" / file), weights(broken / "weights" / file)
        assert one.keys() == other.keys() and one
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_history_has_no_gap_and_no_double(folders):
    _, whole, broken, _ = folders
    assert history(broken) == history(whole)
    assert [int(row["step"]) for row in history(whole)][-1] == STEPS
    assert (broken / "translations.tsv").read_text() == (whole / "translations.tsv").read_text()


def test_the_user_is_told(folders):
    _, _, broken, (killed, interrupted, status, last) = folders
    assert "Resuming" not in killed
    assert "is damaged" in interrupted and "Resuming from step" in interrupted
    assert status == str(128 + signal.SIGINT)
    assert "To resume: python training/train_pt_en.py" in interrupted and str(broken) in interrupted
    assert "--overwrite" not in interrupted  # it would end, some day, the finished run
    assert "Resuming from step" in last and "Finished" in last


def test_few_checkpoints_are_kept_and_no_half_ones(folders):
    for run in folders[1:3]:
        names = [path.name for path in (run / "checkpoints").iterdir()]
        assert len(names) == 3 and all(name.startswith("step-") for name in names)


def test_a_finished_run_is_not_touched(folders):
    corpus, whole, _, _ = folders
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    process = start(corpus, whole)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert "--overwrite" in output and "Traceback" not in output
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before
