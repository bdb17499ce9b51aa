"""Answers while versions are swapped, and the server's memory over thousands of requests."""

import pathlib
import shutil
import threading
import time

from benchmarks.serving_parts import traffic
from benchmarks.serving_parts.setting import Session, newest, serve

# The time limit of REST is that of the soak's gRPC clients: 32 of them wait for two cores.
PATIENT = ("--enable_model_warmup=false", "--rest_api_timeout_in_ms=100000")


def soak(export, folder, seconds):
    """32 clients, every signature, hostile inputs; a version comes, the old one goes."""
    old, new = (newest(export) * 2)[-2:]
    base = pathlib.Path(folder) / "swapped"
    shutil.copytree(old, base / "1")
    paths = {1: old, 2: new}
    answers = {n: traffic.answers(Session(path)) for n, path in paths.items()}
    with serve(folder, base, *PATIENT) as server:

        def swap():
            time.sleep(seconds / 3)
            shutil.copytree(new, base / "copying")
            (base / "copying").rename(base / "2")
            time.sleep(seconds / 3)
            shutil.rmtree(base / "1")

        swapping = threading.Thread(target=swap)
        swapping.start()
        found = traffic.run(server, answers, seconds)
        swapping.join()
        found["states"] = server.states("translator")
    return found


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
    """Answers while versions are swapped."""
    return [
        [
            f"32 clients, {part['seconds']:.0f} s, versions swapped",
            f"{part['requests']} requests",
            f"{part['wrong']} wrong answers; goal: every answer right, or the documented error",
        ]
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
