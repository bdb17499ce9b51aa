"""Answers while versions are swapped, and the server's memory over thousands of requests."""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import statistics
import time

from benchmarks.serving_parts import traffic
from benchmarks.serving_parts.setting import Session, newest, serve

# The time limit of REST is that of the soak's gRPC clients: 32 of them wait for two cores.
PATIENT = ("--enable_model_warmup=false", "--rest_api_timeout_in_ms=100000")


TICKS = 60  # of a soak; at each, an operator may do something
SWAP, CORE = 5, 4  # every fifth tick swaps versions; every fourth has one core only


def soak(export, folder, seconds):
    """Half load, every signature, hostile inputs, while an operator swaps versions and cores."""
    sources = (newest(export) * 2)[-2:]
    answers = [traffic.answers(Session(path)) for path in sources]
    known = {1 + n: answers[n % 2] for n in range(1 + TICKS // SWAP)}
    base = pathlib.Path(folder) / "swapped"
    shutil.copytree(sources[0], base / "1")
    with serve(folder, base, *PATIENT) as server:
        full = traffic.run(server, known, max(10.0, seconds / 30))
        rate = full["requests"] / full["seconds"] / 2
        with concurrent.futures.ThreadPoolExecutor(1) as operator:
            sizes = operator.submit(operate, server, base, sources, seconds)
            found = traffic.run(server, known, seconds, rate=rate)
        found |= {"full": full, "rate": rate, "resident_mib": sizes.result()}
        found["states"] = server.states("translator")
    return found


def operate(server, base, sources, seconds):
    """Swaps versions and takes a core away at times; returns the server's memory in MiB by tick."""
    cores, version, sizes = sorted(os.sched_getaffinity(0)), 1, []
    began = time.monotonic()
    for tick in range(TICKS):
        time.sleep(max(0.0, began + seconds * tick / TICKS - time.monotonic()))
        sizes.append(server.memory() / 2**20)
        allow(server.process.pid, cores[:1] if tick % CORE == CORE - 1 else cores)
        if tick % SWAP == SWAP - 1:
            swap(server, base, sources[version % 2], version)
            version += 1
    return sizes


def swap(server, base, source, version):
    """Adds the next version and removes this one as soon as the next answers."""
    shutil.copytree(source, base / "copying")
    (base / "copying").rename(base / str(version + 1))
    server.wait_for(lambda: server.states("translator").get(version + 1) == "AVAILABLE", 300)
    shutil.rmtree(base / str(version))


def allow(process, cores):
    """Lets every thread of a process run on these cores alone."""
    for thread in pathlib.Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


def memory(export, folder, seconds):
    """Resident memory of the server before and after 10,000 requests of every kind."""
    del seconds
    answers = {int(newest(export)[-1].name): traffic.answers(Session(newest(export)[-1]))}
    with serve(folder, export, *PATIENT) as server:
        # Memory grows during the first thousands, until every thread has run every kind of request.
        traffic.run(server, answers, 240, requests=4000)
        sizes, asked = [server.memory()], 0
        for _ in range(5):
            asked += traffic.run(server, answers, 240, requests=2000)["requests"]
            sizes.append(server.memory())
    return {
        "requests": asked,
        "resident_mib": [size / 2**20 for size in sizes],
        "growth": sizes[-1] / sizes[0] - 1,
    }


def soak_rows(part):
    """Answers, latency and memory while an operator is at work."""
    p50, p99 = part["latency_ms"]
    early, late = (statistics.median(part["resident_mib"][i:][:10]) for i in (10, -10))
    return [
        [
            f"32 clients at half load for {part['seconds']:,.0f} s, versions swapped "
            f"{TICKS // SWAP} times, one core only for a quarter of the time",
            f"{part['requests']:,} requests, {part['kinds']['give_up']:,} of them cancelled",
            f"{part['wrong']} wrong answers; goal: every answer right, or the documented error",
        ],
        ["the same, p50 / p99 of gRPC", f"{p50:,.0f} / {p99:,.0f} ms", ""],
        [
            "the same, resident memory in the second and in the last sixth",
            f"{early:,.0f}, {late:,.0f} MiB",
            f"growth {late / early - 1:.1%}; goal: within 3 %",
        ],
    ]


def memory_rows(part):
    """Resident memory."""
    sizes = ", ".join(f"{size:.0f}" for size in part["resident_mib"])
    return [
        [
            f"resident memory before and after each fifth of {part['requests']:,} requests",
            f"{sizes} MiB",
            f"growth {part['growth']:.1%}; goal: under 3 % over 10,000 requests",
        ]
    ]
