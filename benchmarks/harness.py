"""Shared by all benchmarks: a process for each side, turns, medians, tables, files of results.

Each setting of each side that a benchmark compares runs in a process of its own, which loads
nothing else and ends before the next begins. All settings run once; then the best one of each side
takes further turns. (pyperf measures one side after another, and functions; here the sides
alternate, and most figures are rates of several callers or of whole commands.)

A script calls `parser`, `parsed` and `report`, and `serve` if `alone` runs it.
"""

import contextlib
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from keras_tfmr.compat import usable_cores
from training.command import scripts

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CORES = usable_cores()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def parser(text, *, turns=3):
    """An argument parser with the options of every benchmark; None leaves `--turns` out."""
    made = scripts.parser(text)
    if turns:
        made.add_argument("--turns", type=int, default=turns, help="of each side")
    about = "a tiny case, once, without other options; writes nothing"
    made.add_argument("--quick", action="store_true", help=about)
    return made


def parsed(parser, *needed):
    """The options; with --quick, all others are left to the script, and none is needed."""
    args = parser.parse_args()
    if args.quick and len(sys.argv) > 2:
        parser.error(f"--quick goes without other options. Received: {sys.argv[1:]}")
    if not args.quick and not all(vars(args)[name] for name in needed):
        parser.error(f"needed: {', '.join(needed)}")
    return args


def compare(sides, turns, *, quick=False):
    """Runs all settings once, then the best one of each side in turns.

    Args:
        sides: {side: {setting: function without arguments}}. A function returns a dict with
            "rate", which is better if it is higher, and whatever else it measured.
        turns: Turns of each side's best setting, its first one included.
        quick: Only the first setting of each side, once.

    Returns:
        {side: {"setting", "rates": of all turns, and the rest of what the function returned:
        medians of the numbers, and the last turn's value of anything else}}.
    """
    found = {}
    for side, settings in sides.items():
        tried = {}
        for setting in list(settings)[: 1 if quick else None]:
            tried[setting] = settings[setting]()
            say(side, setting, tried[setting])
        best = max(tried, key=lambda name: tried[name]["rate"])
        found[side] = (best, [tried[best]])
    for turn in range(1, 1 if quick else turns):
        order = list(found)
        for side in order[turn % len(order) :] + order[: turn % len(order)]:  # nobody always first
            setting, answers = found[side]
            answers.append(sides[side][setting]())
            say(f"turn {turn}, {side}", setting, answers[-1])
    return {side: summary(*pair) for side, pair in found.items()}


def summary(setting, answers):
    """Medians of the numbers that the turns returned."""
    rest = {
        name: statistics.median(answer[name] for answer in answers)
        if isinstance(value, (int, float))
        else value
        for name, value in answers[-1].items()
    }
    return {**rest, "setting": setting, "rates": [answer["rate"] for answer in answers]}


def say(side, setting, answer):
    """Progress, without long values."""
    shown = {k: round(v, 4) for k, v in answer.items() if isinstance(v, (int, float))}
    print(f"{side}, {setting}: {shown}", file=sys.stderr, flush=True)


def alone(script, task, environment=None):
    """The answer of `serve` in its own process, which runs `script` with a JSON task."""
    done = subprocess.run(
        [sys.executable, str(script), "--task", json.dumps(task, default=str)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True, text=True,
    )  # fmt: skip
    answers = [line[1:] for line in done.stdout.splitlines() if line.startswith("@")]
    if done.returncode or not answers:
        raise RuntimeError(f"{script} {task} failed: {done.stderr[-2000:]}")
    return json.loads(answers[-1])


def serve(function):
    """In a process that `alone` started: answers its task and returns True."""
    if sys.argv[1:2] != ["--task"]:
        return False
    print("\n@" + json.dumps(function(**json.loads(sys.argv[2]))), flush=True)
    return True


def command(script, *words):
    """Runs a script of the project, silently; returns seconds, processor seconds and peak MiB."""
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *map(str, (ROOT / script, *words))],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        errors = process.stderr.read().decode()
        cost = used(process)
    if process.returncode:
        raise RuntimeError(f"{script} {words} failed: {errors[-2000:]}")
    return {"seconds": time.perf_counter() - begun, **cost}


def used(process):
    """Waits for the end of a process; its processor seconds and peak MiB."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    return {"processor_seconds": seconds, "mib": usage.ru_maxrss / 1024}


def median_seconds(call, seconds):
    """Median seconds of a call, after one that warms up; at least three calls."""
    call()
    times = []
    while sum(times) < seconds or len(times) < 3:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def installed(*names):
    """Whether all these modules can be imported; says what is missing."""
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if missing:
        print(f"left out, not installed: {', '.join(missing)}", file=sys.stderr)
    return not missing


def about(*packages):
    """The conditions of a measurement: date, commit, processor, installed versions."""
    versions = []
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown"
    cores = f"{CORES} core{'s' * (CORES > 1)}"
    return {
        "date": datetime.date.today().isoformat(), "commit": commit,
        "machine": f"{cores} of {processor()}, Python {platform.python_version()}",
        "versions": ", ".join(versions),
    }  # fmt: skip


def processor():
    """The processor's name, and by which instructions it multiplies integers, if it says so."""
    name, flags = platform.processor() or platform.machine(), []
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":")[1].strip()
            elif line.startswith("flags"):
                flags = line.split()
    known = {"amx_int8": "AMX", "avx512_vnni": "VNNI", "avx_vnni": "VNNI", "avx2": "AVX2"}
    widest = [text for flag, text in known.items() if flag in flags]
    return f"{name} with {widest[0]}" if widest else name


def table(header, rows):
    """A Markdown table; numbers have three significant digits."""

    def text(cell):
        if not isinstance(cell, float):
            return str(cell)
        return f"{cell:.3g}" if abs(cell) < 1000 else f"{cell:,.0f}"

    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(text, line)) + " |" for line in lines) + "\n"


def ahead(row, rows, same, dtypes):
    """Our speed over a peer's row of the same case, one ratio for each dtype."""
    if row["engine"].startswith("keras_tfmr"):
        return [""] * len(dtypes)
    rates = {one["engine"]: one["rate"] for one in rows if all(one[k] == row[k] for k in same)}
    ours = [rates.get(f"keras_tfmr {dtype}") for dtype in dtypes]
    return [rate / row["rate"] if rate else "" for rate in ours]


def kept(name):
    """The numbers of an earlier run, or nothing."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def report(name, title, body, numbers, *, quick=False):
    """Prints a page and, unless it was a quick run, writes results/NAME.md and NAME.json."""
    facts = (numbers.get(key) for key in ("machine", "versions"))
    head = f"# {title}\n\n{'; '.join(filter(None, facts))}. "
    page = f"{head}Commit {numbers['commit']}, {numbers['date']}.\n\n{body.rstrip()}\n"
    print(page)
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text(page)
        (RESULTS / f"{name}.json").write_text(json.dumps(numbers, indent=1) + "\n")


def tiny_run(folder, *more):
    """A translator trained for a few updates on the phrasebook, for quick runs; more options."""
    words = ["--steps", 4, "--preset", "tiny", "--vocab_size", 800, "--set", "validation_pairs=8"]
    command("training/train_pt_en.py", *words, "--output", folder / "run", *more)
    return folder / "run"


SENTENCES = ["O gato preto dorme.", "A casa é branca e grande.", "Onde está a minha mochila?"]


def lines_of(path):
    """The lines of a text file, which end at line feeds only, as for the scripts measured."""
    text = Path(path).read_bytes().decode("utf-8-sig")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def pairs_of(path):
    """[[source, target]] of the lines of a file."""
    return [line.split("\t")[:2] for line in lines_of(path)]


def subwords(folder):
    """The SentencePieceProcessors of the sources and of the targets of a model's folder."""
    from sentencepiece import SentencePieceProcessor

    return [SentencePieceProcessor(f"{folder}/{side}.spm") for side in ("source", "target")]


def tiny_pairs(path, numbers=range(300)):
    """Pairs with numbers in them, for quick runs; returns the path."""
    lines = (f"A casa {n} tem {n % 7} portas.\tHouse {n} has {n % 7} doors.\n"
             for n in numbers)  # fmt: skip
    path.write_text("".join(lines), "utf-8")
    return path
