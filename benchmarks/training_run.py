"""Compares the updates of a finished run with its bare steps: what the script adds to them.

    python benchmarks/training_run.py --run runs/mine
    KERAS_BACKEND=jax python benchmarks/training_run.py --run runs/base     # of a run on a GPU

A bare step is the compiled update on a batch that is already there. Each shape of a batch is timed
alone, and counts as often as it occurs in an epoch. The run's own figures are those of its
history.csv. Run it on the machine of the run, on the same backend, with nothing beside it. Writes
results/training_run.md and .json.
"""

import collections
import contextlib
import csv
import functools
import os
import statistics
import tempfile
from pathlib import Path

import harness
import numpy as np

from training.command import scripts


def bare(run, seconds):
    """Target tokens a second of the bare steps of a `RunFolder`'s training, and its summary."""
    from training.data import prepare
    from training.run.device import prepare_backend
    from training.run.distributed import connect
    from training.settings.training_config import TrainingConfig
    from training.train import Run, make_model

    prepare_backend()
    before = run.read_config()
    arguments = before["arguments"].items()
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in arguments}
    settings = TrainingConfig(**arguments)
    data = prepare(settings, run, before)
    with contextlib.redirect_stdout(None):
        model, _ = make_model(
            Run(settings, run, connect(settings), data, data.task.config(), start=None)
        )
    often, tokens, batches = collections.Counter(), 0, {}
    epoch = data.batches.dataset().take(data.batches.batches_in(0))
    for inputs, labels in epoch.as_numpy_iterator():
        shape = tuple(side.shape for side in inputs)
        often[shape], tokens = often[shape] + 1, tokens + np.count_nonzero(labels)
        batches.setdefault(shape, (inputs, labels))
    times = {
        shape: harness.median_seconds(lambda batch=batch: model.train_on_batch(*batch), seconds)
        for shape, batch in batches.items()
    }
    return tokens / sum(times[shape] * often[shape] for shape in times), data.batches.summary()


def measured(run, seconds):
    """{figure: number or text} of a run."""
    with open(run.history, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # The first row is not yet at speed, and the last one may be short.
    script = statistics.median(float(row["tokens_per_second"]) for row in rows[1:-1] or rows)
    rate, batches = bare(run, seconds)
    about = run.read_config()["arguments"]
    words = (f"{name}: {about[name]}" for name in ("preset", "precision", "tokens_per_batch"))
    return {
        "the run": ", ".join(words),
        "batches": batches,
        "bare steps, tokens/s": rate,
        "keras_tfmr's script between validations, tokens/s": script,
        "of the bare steps": script / rate,
        "minutes of the run, validations included": float(rows[-1]["minutes"]),
    }


def main():
    parser = scripts.parser(__doc__)
    full = functools.partial(parser.add_argument, not_with=["--quick"])
    full("--run", help="folder of a finished run")
    full("--seconds", type=float, default=3, help="of each shape")
    parser.add_argument("--quick", action="store_true", help="a tiny run; writes nothing")
    args = parser.parse_args()
    if not (args.quick or args.run):
        parser.error("--run is missing")
    from training.run.run_folder import RunFolder

    with tempfile.TemporaryDirectory() as folder:
        path = harness.tiny_run(Path(folder), "--no_export") if args.quick else args.run
        figures = measured(RunFolder(path), 0.01 if args.quick else args.seconds)
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    numbers = {**harness.about("keras", backend), "figures": figures}
    body = harness.table(["", ""], [[name, value] for name, value in figures.items()])
    title = "The training script beside its bare steps"
    harness.report("training_run", title, body, numbers, quick=args.quick)


if __name__ == "__main__":
    main()
