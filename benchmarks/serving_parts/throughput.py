"""Sixteen clients with one sentence each, against batches of sixteen in process."""

import concurrent.futures
import random
import statistics
import time

import numpy as np
from server_models import request

from benchmarks.serving_parts.setting import (
    BATCH_THREADS,
    CAP,
    CLIENTS,
    TEXTS,
    TIMEOUT_MS,
    Session,
    newest,
    seconds_of,
    serve,
)


def ask(server, text):
    """Translates one sentence; returns the seconds it took."""
    message = request("translator", text=[text])
    return seconds_of(lambda: server.prediction.Predict(message, timeout=60))


def closed_loop(server, seconds, clients=CLIENTS):
    """Lets `clients` threads ask without a pause; returns (sentences per second, latencies)."""
    ends = time.perf_counter() + seconds

    def client(number):
        texts, latencies = random.Random(number), []
        while time.perf_counter() < ends:
            latencies.append(ask(server, texts.choice(TEXTS)))
        return latencies

    started = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        latencies = [value for client in pool.map(client, range(clients)) for value in client]
    return len(latencies) / (time.perf_counter() - started), latencies


def open_loop(server, rate, seconds):
    """Sends `rate` requests per second at random times, without waiting for the last answers."""
    chance, latencies, pending = random.Random(0), [], []
    due = time.perf_counter()
    ends = due + seconds
    while due < ends:
        due += chance.expovariate(rate)
        time.sleep(max(0.0, due - time.perf_counter()))
        message = request("translator", text=[chance.choice(TEXTS)])
        call = server.prediction.Predict.future(message, timeout=60)
        # Counted from the time it was due, so that a late client does not hide latency.
        call.add_done_callback(lambda _, due=due: latencies.append(time.perf_counter() - due))
        pending.append(call)
    for call in pending:
        call.result()
    return latencies


def in_process(session, seconds):
    """Sentences per second of batches of CAP, one after the other."""
    chance, count, started = random.Random(0), 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        session.run("translate", text=chance.choices(TEXTS, k=CAP))
        count += CAP
    return count / (time.perf_counter() - started)


def run(export, folder, seconds):
    """Sixteen clients with one sentence each, against batches of sixteen in process."""
    session = Session(newest(export)[-1])
    for size in (1, 4, CAP):
        session.run("translate", text=TEXTS[:size])
    with serve(folder, export, "--enable_model_warmup=false") as server:
        for _ in range(2):  # not counted: runs every batch size once
            closed_loop(server, 2)
        rounds = [
            (in_process(session, seconds / 3), closed_loop(server, seconds / 3)[0])
            for _ in range(3)
        ]
        bare, batched = (statistics.median(values) for values in zip(*rounds, strict=True))
        alone = [ask(server, text) for text in TEXTS * 2]
        latencies = open_loop(server, batched / 2, seconds)
    with serve(folder, export, "--enable_model_warmup=false", batching=False) as server:
        closed_loop(server, 2)
        unbatched, _ = closed_loop(server, seconds / 2)
    single, half_load = statistics.median(alone), float(np.percentile(latencies, 99))
    return {
        "batching": f"at most {CAP} rows, {TIMEOUT_MS} ms, {BATCH_THREADS} threads of a core each",
        "in_process_per_second": bare,
        "batched_per_second": batched,
        "unbatched_per_second": unbatched,
        "share": batched / bare,
        "gain": batched / unbatched,
        "single_ms": single * 1e3,
        "single_p99_ms": float(np.percentile(alone, 99)) * 1e3,
        "half_load_p50_ms": float(np.percentile(latencies, 50)) * 1e3,
        "half_load_p99_ms": half_load * 1e3,
        "ratio": half_load / single,
    }


def rows(part):
    """Sentences a second and latencies."""
    return [
        ["in process, batches of 16", f"{part['in_process_per_second']:.1f} sentences/s", ""],
        [
            f"16 gRPC clients, batching ({part['batching']})",
            f"{part['batched_per_second']:.1f} sentences/s",
            f"{part['share']:.0%} of in process; goal: at least 85 %",
        ],
        [
            "16 gRPC clients, no batching",
            f"{part['unbatched_per_second']:.1f} sentences/s",
            f"batching gains {part['gain']:.1f} times",
        ],
        [
            "one request at a time, batching, p50 / p99",
            f"{part['single_ms']:.1f} / {part['single_p99_ms']:.1f} ms",
            f"{TIMEOUT_MS} ms of it waits for company",
        ],
        [
            "half load, p50 / p99",
            f"{part['half_load_p50_ms']:.1f} / {part['half_load_p99_ms']:.1f} ms",
            f"p99 is {part['ratio']:.1f} times the median request alone, "
            f"{part['half_load_p99_ms'] / part['single_p99_ms']:.1f} times the p99 alone; "
            "goal: p99 at half load at most 4 times one request",
        ],
    ]
