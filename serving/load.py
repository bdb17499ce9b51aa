"""Measures a server under load: throughput and latency by callers, as a table and a plot.

    python serving/load.py --data sentences.txt
    python serving/load.py --data validation.tsv --server translator.example:8500 --plot load.png

Each caller sends a request, waits for the answer, and sends the next one. The texts are the lines
of a file, up to the first tab, in their order, again and again. Run it on another machine than the
server's, since it takes processor time itself. Exit status: 0 done, 1 if a request failed, 2 wrong
arguments, 3 no server.
"""

import collections
import itertools
import math
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from keras_tfmr.client import ServingError, UnavailableError
from serving.client import add_server_options, connect
from training.command import scripts

HEADER = """| texts a request | callers | texts/s | p50, ms | p95, ms | p99, ms | errors |
| --- | --- | --- | --- | --- | --- | --- |"""


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    parser.add_argument("--data", metavar="FILE", type=Path, required=True,
        help="file of texts, one per line; TSV files are read up to the first tab")
    parser.add_argument("--ask", choices=("translate", "classify", "log_prob"), default="translate",
        help="what to ask")
    parser.add_argument("--callers", metavar="N", type=scripts.number_from(1), nargs="+",
        default=[1, 2, 4, 8, 16, 32, 64], help="callers at once (default: 1 2 4 8 16 32 64)")
    parser.add_argument("--texts", metavar="N", type=scripts.number_from(1), nargs="+",
        default=[1, 32], help="texts in a request (default: 1 32)")
    parser.add_argument("--seconds", metavar="S", type=scripts.number_from(0.1), default=10.0,
        help="of each line of the table")
    parser.add_argument("--plot", metavar="FILE.png", type=scripts.picture,
        help="also draw the table")
    add_server_options(parser)
    # fmt: on
    return parser.parse_args(arguments)


def texts_of(path):
    """The texts of a file that are not blank; a ValueError if there are none."""
    lines = path.read_text("utf-8-sig", "replace").split("\n")
    texts = [text for line in lines if (text := line.partition("\t")[0].strip())]
    if not texts:
        raise ValueError(f"{path} has no texts")
    return texts


def measured(ask, texts, size, callers, seconds):
    """Throughput and latency of callers who ask at the same time, again and again.

    Args:
        ask: A function of a list of texts; a `ServingError` is counted.
        texts: List of str.
        size: Texts in a request.
        callers: Callers at once, each a thread.
        seconds: In which requests are sent, one per caller at least.

    Returns:
        A dict: the arguments `texts` (the size) and `callers`; `rate`, texts answered per second;
        `p50`, `p95` and `p99` of the answered requests in milliseconds, NaN if there are none;
        `errors`, the number of requests by the gRPC code.
    """
    times, errors, numbers = [], collections.Counter(), itertools.count()
    start = threading.Barrier(callers + 1)
    begun = math.inf

    def call():
        start.wait()
        while True:
            first = next(numbers) * size
            asked = [texts[n % len(texts)] for n in range(first, first + size)]
            before = time.perf_counter()
            try:
                ask(asked)
                times.append(time.perf_counter() - before)
            except ServingError as error:
                errors[error.code] += 1
            if time.perf_counter() - begun >= seconds:
                return

    with ThreadPoolExecutor(callers) as pool:
        calls = [pool.submit(call) for _ in range(callers)]
        start.wait()
        begun = time.perf_counter()
        for each in calls:
            each.result()
        rate = size * len(times) / (time.perf_counter() - begun)
    # Each of them is a time that was measured: nothing is interpolated.
    shares = np.percentile(times or [math.nan], (50, 95, 99), method="inverted_cdf")
    percentiles = dict(zip(("p50", "p95", "p99"), (1e3 * shares).tolist(), strict=True))
    return {"texts": size, "callers": callers, "rate": rate, **percentiles, "errors": dict(errors)}


def line_of(row):
    """A line of the table."""
    errors = ", ".join(f"{count} {code}" for code, count in row["errors"].items()) or "0"
    times = (f"{row[name]:.0f}" for name in ("p50", "p95", "p99"))
    cells = (row["texts"], row["callers"], f"{row['rate']:.1f}", *times, errors)
    return "| " + " | ".join(map(str, cells)) + " |"


def plot(runs, title=""):
    """The figure of tables: latency by callers, and throughput by texts in a request.

    The latency is that of the smallest requests; the throughput that of the fewest and of the most
    callers.

    Args:
        runs: {name: rows of `measured`}; a name is "" if there is one run.
        title: The title above both.
    """
    from matplotlib.figure import Figure  # which takes a second
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    figure.suptitle(title, fontsize=10)
    times, rates = figure.subplots(1, 2)
    smallest = min(row["texts"] for rows in runs.values() for row in rows)
    for number, (name, rows) in enumerate(runs.items()):
        color, name = f"C{number}", f"{name}, " if name else ""
        for share, style in (("p50", "-"), ("p99", "--")):
            points = [(row["callers"], row[share]) for row in rows if row["texts"] == smallest]
            _line(times, points, color, style, f"{name}{share}")
        callers = {row["callers"] for row in rows}
        ends = ((max(callers), "-"), (min(callers), "--"))
        for some, style in ends[: len(callers)]:
            points = [(row["texts"], row["rate"]) for row in rows if row["callers"] == some]
            _line(rates, points, color, style, f"{name}{counted(some, 'caller')}")
    times.set(xlabel="callers", ylabel="ms", yscale="log")
    times.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    times.yaxis.set_minor_locator(NullLocator())
    times.yaxis.set_major_formatter(lambda ms, _: f"{ms:,g}")
    times.set_title(f"latency, {counted(smallest, 'text')} a request", fontsize=10)
    rates.set(xlabel="texts a request", ylabel="texts/s")
    rates.set_title("throughput", fontsize=10)
    rates.set_ylim(bottom=0)
    for axes in (times, rates):
        numbers = sorted({int(x) for line in axes.lines for x in line.get_xdata()})
        axes.set_xscale("log", base=2)
        axes.set_xticks(numbers, map(str, numbers))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=9)
    return figure


def _line(axes, points, color, style, label):
    """Draws the points of a run, which are in any order."""
    axes.plot(*zip(*sorted(points), strict=True), style, color=color, marker="o", label=label)


def counted(number, thing):
    """Such as "1 text" and "32 texts"."""
    return f"{number} {thing}{'s' if number > 1 else ''}"


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    rows = []
    try:
        texts = texts_of(options.data)
        with connect(options, retry=False, batch_size=max(options.texts)) as client:
            asks = {
                "translate": client.translate,
                "classify": client.classify,
                "log_prob": client.log_prob,
            }
            ask = asks[options.ask]
            ask(texts[:1])  # an error now, if no server is there or it has another model
            print(HEADER, flush=True)
            for size, callers in itertools.product(options.texts, options.callers):
                rows.append(measured(ask, texts, size, callers, options.seconds))
                print(line_of(rows[-1]), flush=True)
    except ServingError as error:
        print(f"load.py: {error}", file=sys.stderr)
        return 3 if isinstance(error, UnavailableError) else 1
    except (OSError, ValueError) as error:
        print(f"load.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if options.plot:
        plot({"": rows}, f"{options.model} at {options.server}").savefig(options.plot, dpi=150)
    return int(any(row["errors"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
