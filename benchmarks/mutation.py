"""Measures how many small faults the tests find: mutants of five parts of the code.

    python benchmarks/mutation.py                                     # 300 mutants, at random
    python benchmarks/mutation.py --parts losses --mutants 60 --dry   # of 60, those of the losses
    python benchmarks/mutation.py --survivors                         # survivors of the last run

A mutant is one of our files with one operator, number, condition, argument, statement or result
changed. It faces the tests of its part. Keras and TensorFlow are imported once. Each mutant runs in
a fork, which imports the changed file in place of the real one and ends at the first test that
fails. A mutant that fails a test, or takes ten times as long as the real file, is killed.
mutation_parts/reasons.py says why the others survive.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")

from benchmarks import measure
from benchmarks.mutation_parts import mutants
from benchmarks.mutation_parts.reasons import REASONS

ROOT = Path(__file__).resolve().parents[1]


class Part(NamedTuple):
    """The files that are changed, and the tests that have to notice."""

    files: tuple
    tests: tuple


LAYERS = "keras_tfmr/layers/"
PARTS = {
    "decoding": Part(
        tuple(f"keras_tfmr/decoding/{name}.py" for name in (
            "beam", "config", "constraints", "greedy", "loop", "sampling", "scoring", "single",
            "step", "topk",
        )),
        ("tests/decoding/test_decoding.py", "tests/decoding/test_decoding_sampling.py"),
    ),
    "attention": Part(
        (f"{LAYERS}attention.py", f"{LAYERS}dot_product.py", f"{LAYERS}attention_sublayers.py"),
        (
            "tests/layers/test_attention.py", "tests/layers/test_decoder.py", "tests/layers/test_variants.py",
            "-k", "not contract and not fields and not a_language",
        ),
    ),
    "losses": Part(("keras_tfmr/losses.py",), ("tests/layers/test_losses.py",)),
    "checkpoints": Part(
        ("training/run/checkpoints.py",), ("tests/training/test_training_checkpoints.py",)
    ),
    "batching": Part(
        ("serving/devserver/batching.py",),
        ("tests/serving/test_server_batching.py", "-k", "not real and not flood and not cancelled"),
    ),
}  # fmt: skip


def run_tests(part, mutant=None, seconds=None):
    """Runs the tests of a part in a fork.

    Args:
        part: Part.
        mutant: mutants.Mutant, or None for the unchanged files.
        seconds: Time after which the fork is killed.

    Returns:
        "lives" or how it was killed: "failed" or "too slow"; and the seconds it took.
    """
    started = time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        with tempfile.TemporaryDirectory() as folder:
            os._exit(_in_fork(part, mutant, folder))
    while not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if seconds and time.monotonic() - started > seconds:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "too slow", time.monotonic() - started
        time.sleep(0.02)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "lives" if status == 0 else "failed", time.monotonic() - started


def _in_fork(part, mutant, folder):
    import pytest

    os.chdir(ROOT)
    if mutant is not None:
        mutant.install(folder)
    quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/pytest"]
    return int(pytest.main([*quiet, *part.tests]))


def judge(name, chosen):
    """Yields one dict for each of the chosen mutants of a part."""
    part = PARTS[name]
    outcome, usual = run_tests(part)
    if outcome != "lives":
        raise RuntimeError(f"{name}: the tests fail without a mutant: {' '.join(part.tests)}")
    print(f"{name}: {usual:.1f} s for all tests, {len(chosen)} mutants", flush=True)
    for mutant in chosen:
        outcome, seconds = run_tests(part, mutant, 10 * usual + 10)
        print(f"{outcome:>8} {seconds:5.1f} s  {mutant.key}", flush=True)
        yield {"part": name, "mutant": mutant.key, "outcome": outcome}


def draw(count, seed):
    """Draws `count` of all mutants at random; returns {part: its drawn mutants}."""
    everything = [
        (name, mutant)
        for name, part in PARTS.items()
        for file in part.files
        for mutant in mutants.of_file(ROOT, file)
    ]
    drawn = random.Random(seed).sample(everything, min(count, len(everything)))
    return {name: [mutant for other, mutant in drawn if other == name] for name in PARTS}


def page(numbers):
    """The text of results/mutation.md."""
    rows = []
    for name in PARTS:
        found = [one["outcome"] for one in numbers["mutants"] if one["part"] == name]
        killed = len(found) - found.count("lives")
        if found:
            share = f"{killed / len(found):.0%}"
            rows.append([name, len(found), killed, share, " ".join(PARTS[name].tests)])
    lived = [one for one in numbers["mutants"] if one["outcome"] == "lives"]
    count = len(numbers["mutants"])
    text = (
        f"# Mutants\n\n`python benchmarks/mutation.py --mutants {numbers['drawn']} "
        f"--seed {numbers['seed']}`, "
        f"{numbers['versions']}: {count - len(lived)} of {count} killed "
        f"({1 - len(lived) / count:.0%}).\n\n"
        + measure.table(["part", "mutants", "killed", "share", "tests"], rows)
    )
    if lived:
        text += "\nThose that live, and why:\n\n" + measure.table(
            ["mutant", "why"], [[one["mutant"], REASONS.get(one["mutant"], "")] for one in lived]
        )
    return text


def last_run():
    """The verdicts of the last run, for each mutant."""
    file = measure.RESULTS / "mutation.json"
    return json.loads(file.read_text())["mutants"] if file.exists() else []


def main(arguments=None):
    """Judges mutants, prints each verdict, and returns 1 if too few are killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--mutants", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--survivors", action="store_true", help="only the last survivors")
    parser.add_argument("--dry", action="store_true", help="do not write the results")
    options = parser.parse_args(arguments)
    import keras  # noqa: F401  once, for all forks; nothing of it is used here, or it could not fork
    import pytest  # noqa: F401

    chosen = draw(options.mutants, options.seed)
    drawn = {mutant.key for some in chosen.values() for mutant in some}
    if options.survivors:
        lived = {one["mutant"] for one in last_run() if one["outcome"] == "lives"}
        chosen = {name: [m for m in some if m.key in lived] for name, some in chosen.items()}
    found = [one for name in options.parts if chosen[name] for one in judge(name, chosen[name])]
    if not options.dry:
        left = drawn - {one["mutant"] for one in found}
        numbers = {
            "drawn": options.mutants,
            "seed": options.seed,
            "versions": measure.versions("tensorflow", "keras", "pytest"),
            "mutants": found + [one for one in last_run() if one["mutant"] in left],
        }
        measure.write("mutation", page(numbers), numbers)
    lived = sum(one["outcome"] == "lives" for one in found)
    print(f"{len(found) - lived} of {len(found)} killed")
    return int(lived > 0.1 * len(found))


if __name__ == "__main__":
    sys.exit(main())
