"""What the benchmarks share: cases that take turns, medians, and files of results."""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# Several benchmarks use the models and server processes of the tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))


def interleaved(cases, rounds, seconds=None):
    """Times every case once per round, so that a slow machine slows all of them alike.

    Args:
        cases: {name: function without arguments}; called once before, to warm up.
        rounds: Number of rounds at most.
        seconds: Stop after the round that ends past this time; at least 3 rounds are done.

    Returns:
        {name: median seconds of one call}, {name: median processor seconds of one call}. The
        second, summed over cores, stays comparable while other work shares the cores.
    """
    names = list(cases)
    for name in names:
        cases[name]()
    wall, processor = ({name: [] for name in names} for _ in range(2))
    start = time.perf_counter()
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:  # nobody is always first
            before = time.perf_counter(), time.process_time()
            cases[name]()
            wall[name].append(time.perf_counter() - before[0])
            processor[name].append(time.process_time() - before[1])
        if seconds is not None and i >= 2 and time.perf_counter() - start > seconds:
            break
    return tuple({n: statistics.median(t) for n, t in times.items()} for times in (wall, processor))


def alone(script, *arguments, environment=None):
    """Runs a script in its own process; returns the JSON that it prints after an `@`."""
    done = subprocess.run(
        [sys.executable, *map(str, (script, *arguments))],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    answers = [line[1:] for line in done.stdout.splitlines() if line.startswith("@")]
    if done.returncode or not answers:
        raise RuntimeError(f"{script} {arguments} failed: {done.stderr[-2000:]}")
    return json.loads(answers[-1])


def answer(value):
    """Prints what `alone` reads."""
    print("\n@" + json.dumps(value), flush=True)


def machine():
    """Describes the machine that the numbers depend on."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Python {platform.python_version()}"


def versions(*packages):
    """The installed ones of these packages, each with its version."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return ", ".join(found)


def table(header, rows):
    """A Markdown table; numbers are written with three significant digits."""

    def text(cell):
        return (
            f"{cell:.3g}"
            if isinstance(cell, float) and cell < 1000
            else (f"{cell:.0f}" if isinstance(cell, float) else str(cell))
        )

    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(text, line)) + " |" for line in lines) + "\n"


def write(name, page, numbers):
    """Writes results/NAME.md for people and results/NAME.json for programs."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    (RESULTS / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")
