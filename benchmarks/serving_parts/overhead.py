"""The time that the server adds to one request, and the part of it that gRPC takes."""

import pathlib
import random
import time

import numpy as np
from server_models import half_plus, request
from server_process import ServerProcess, free_port

from benchmarks import measure
from benchmarks.serving_parts import echo
from benchmarks.serving_parts.setting import (
    INTER_OP,
    INTRA_OP,
    TEXTS,
    Session,
    newest,
    seconds_of,
    serve,
)
from serving.devserver.servable import Servable


def in_turn(ways, seconds):
    """Sends one sentence after the other, each in every way; the first way changes each time.

    Args:
        ways: Functions of a sentence.
        seconds: Duration.

    Returns:
        Seconds `[ways, sentences]`.
    """
    chance, rows, started = random.Random(0), [], time.perf_counter()
    while time.perf_counter() - started < seconds:
        text, row = chance.choice(TEXTS), [0.0] * len(ways)
        for i in range(len(ways)):
            turn = (i + len(rows)) % len(ways)
            row[turn] = seconds_of(lambda turn=turn, text=text: ways[turn](text))
        rows.append(row)
    return np.array(rows).T


def run(export, folder, seconds):
    """One request alone: in this process with the server's threads, over gRPC, and an echo."""
    found = translations(export, folder, seconds)
    return found | half_plus_two(folder, seconds / 3)


def translations(export, folder, seconds):
    """A translation of the export."""
    session = Session(newest(export)[-1], INTRA_OP, INTER_OP)
    with (
        serve(folder, export, "--enable_model_warmup=false", batching=False) as server,
        echo.running(free_port()) as answer,
    ):
        ways = (
            lambda text: session.run("translate", text=[text]),
            lambda text: server.prediction.Predict(request("translator", text=[text]), timeout=60),
            answer,
        )
        in_turn(ways, seconds / 10)
        bare, served, echoed = in_turn(ways, seconds)
    return {
        "translate_bare_ms": float(np.median(bare)) * 1e3,
        "translate_grpc_ms": float(np.median(served)) * 1e3,
        # Sentences differ by more than the overhead, so compare sentence by sentence.
        "overhead_ms": float(np.median(served - bare)) * 1e3,
        "echo_ms": float(np.median(echoed)) * 1e3,
    }


def half_plus_two(folder, seconds):
    """TensorFlow Serving's smallest example model, whose run takes almost no time."""
    half_plus(pathlib.Path(folder) / "half", 1)
    with ServerProcess(folder, f"--model_base_path={folder}/half") as server:
        servable = Servable("half", 1, f"{folder}/half/1")
        definition = servable.signatures["serving_default"]
        feeds = {definition.inputs["x"].name: np.float32([1.0, 2.0])}
        message = request("default", x=[1.0, 2.0])
        medians, _ = measure.interleaved(
            {
                "bare": lambda: servable.run(feeds, [definition.outputs["y"].name]),
                "grpc": lambda: server.prediction.Predict(message),
                "rest": lambda: server.http("/v1/models/default:predict", {"instances": [1.0, 2]}),
            },
            3000,
            seconds,
        )
    return {
        "half_plus_two_overhead_ms": (medians["grpc"] - medians["bare"]) * 1e3,
        "half_plus_two_rest_overhead_ms": (medians["rest"] - medians["bare"]) * 1e3,
    }


def rows(part):
    """What the server adds to one request."""
    return [
        [
            "one translation, bare session / gRPC",
            f"{part['translate_bare_ms']:.2f} / {part['translate_grpc_ms']:.2f} ms",
            f"overhead {part['overhead_ms']:.2f} ms, of which {part['echo_ms']:.2f} ms are gRPC's: "
            "a method that does nothing takes as long; goal: at most 2 ms",
        ],
        [
            "x / 2 + 2, overhead of gRPC / REST",
            f"{part['half_plus_two_overhead_ms']:.2f} / "
            f"{part['half_plus_two_rest_overhead_ms']:.2f} ms",
            "",
        ],
    ]
