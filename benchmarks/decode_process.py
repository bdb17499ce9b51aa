"""Runs one engine with one setting, in a process that loads nothing else, for decode.py.

Reads one JSON object per line and answers each with another:

    {"do": "warm", "batch": 32, "beams": 4}
        -> {"first_s": 2.1, "peak_mib": 900.1, "ids": [[...]]}
    {"do": "latency", ..., "seconds": 1, "best": 9.9}           -> {"value": 10.2}  ms
    {"do": "throughput", ..., "callers": 2, "best": 1100}       -> {"value": 980.5} sentences/s

`best` is the best value of the other settings: a setting that is far behind it after a call or two
is not timed any longer.
"""

import json
import resource
import statistics
import sys
import threading
import time

import decode_engines as engines

FAR = 1.5  # times as slow as the best


def warm(call, ask):
    start = time.perf_counter()
    ids = call(engines.source(ask["batch"], ask.get("length", engines.SOURCE)), ask["beams"])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MiB
    return {"first_s": seconds, "peak_mib": peak, "ids": ids.tolist()}


def latency(call, ask):
    """Median milliseconds of a call, one call after another."""
    source, times = engines.source(ask["batch"]), []
    while sum(times) < ask["seconds"] or len(times) < 5:
        start = time.perf_counter()
        call(source, ask["beams"])
        times.append(time.perf_counter() - start)
        if len(times) >= 2 and sum(times) > 3 * ask["seconds"]:
            break
        if ask["best"] and len(times) >= 2 and min(times) * 1e3 > FAR * ask["best"]:
            break
    return {"value": statistics.median(times) * 1e3}


def throughput(call, ask):
    """Sentences per second of callers, each of which sends its next request on an answer."""
    source, rates = engines.source(ask["batch"]), []

    def caller():
        start, done = time.perf_counter(), 0
        while (passed := time.perf_counter() - start) < ask["seconds"] or done < 2:
            rate = ask["callers"] * done * ask["batch"] / passed
            if done and ask["best"] and rate * FAR < ask["best"]:
                break
            call(source, ask["beams"])
            done += 1
        rates.append(done * ask["batch"] / (time.perf_counter() - start))

    threads = [threading.Thread(target=caller) for _ in range(ask["callers"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"value": sum(rates)}


def main(engine, setting, size, folder):
    kind = type(engines.ENGINES[engine][0])
    call = kind(**json.loads(setting)).load(size, folder)
    answers = {"warm": warm, "latency": latency, "throughput": throughput}
    for line in sys.stdin:
        ask = json.loads(line)
        print("\n@" + json.dumps(answers[ask["do"]](call, ask)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
