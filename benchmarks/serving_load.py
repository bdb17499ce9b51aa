"""What the development server adds, gains and survives, on an exported translator.

    python benchmarks/serving_load.py EXPORT                 every part
    python benchmarks/serving_load.py EXPORT --parts soak    one part; the others' numbers stay

EXPORT is a folder of versions (a server's --model_base_path); soak and memory, which ask for
thousands of translations, want one of a tiny model. The server runs in a process of its
own; client and server share the machine. Results go to results/serving.md and .json.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

import measure  # noqa: E402
import numpy as np  # noqa: E402
import serving_soak  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401
from server_models import half_plus, request  # noqa: E402
from server_process import ServerProcess  # noqa: E402
from tensorflow.core.protobuf import config_pb2  # noqa: E402

from serving.devserver.servable import Servable  # noqa: E402

CLIENTS = 16
CAP = 16  # rows of a batch, on the server and in process
# Two batches at a time, each on a core of its own: they are in each other's way if every operation
# of both asks for both cores.
BATCH_THREADS = 2
INTRA_OP, INTER_OP = 1, 2
# As long as it takes the clients of the last batch to read their answers and to ask again. If the
# next batch goes without them, every batch is half full.
TIMEOUT_MS = 10
# No allowed_batch_sizes: a graph that is not compiled runs any size; padding is wasted work.
BATCHING = f"""
max_batch_size {{ value: {CAP} }}
batch_timeout_micros {{ value: {TIMEOUT_MS * 1000} }}
num_batch_threads {{ value: {BATCH_THREADS} }}
max_enqueued_batches {{ value: 64 }}
"""
# As patient with REST as the clients of the soak are with gRPC: 32 of them keep two cores waiting.
PATIENT = ("--enable_model_warmup=false", "--rest_api_timeout_in_ms=100000")
GOALS = {
    "share": "at least 85 % of in-process batched translation",
    "ratio": "p99 at half load at most 4 times one request",
    "overhead": "at most 2 ms over the bare session call",
    "soak": "every answer right, or the documented error",
    "memory": "growth under 3 % over 10,000 requests",
}
SUBJECTS = ("Eu", "A minha irmã", "O professor", "Nós", "Os vizinhos", "A Maria", "Ele", "Vocês")
ACTIONS = (
    "gosto de café.",
    "comprou um livro novo ontem.",
    "não sei onde fica a estação.",
    "vamos ao mercado amanhã de manhã, se não chover.",
    "está a dormir.",
    "quer falar consigo?",
    "perdeu o comboio das oito porque o despertador não tocou.",
    "tem três gatos e um cão.",
)
TEXTS = [f"{subject} {action}".encode() for subject in SUBJECTS for action in ACTIONS]


class Session:
    """The export in this process: what the server has to be compared with."""

    def __init__(self, path, intra_op=0, inter_op=0):
        config = config_pb2.ConfigProto(
            intra_op_parallelism_threads=intra_op, inter_op_parallelism_threads=inter_op
        )
        self._servable = Servable("translator", 0, str(path), session_config=config)

    def run(self, signature, **inputs):
        """Outputs by name; inputs are lists of bytes."""
        definition = self._servable.signatures[signature]
        feeds = {
            definition.inputs[name].name: np.array(values, object)
            for name, values in inputs.items()
        }
        names = sorted(definition.outputs)
        values = self._servable.run(feeds, [definition.outputs[name].name for name in names])
        return dict(zip(names, values, strict=True))


def serve(folder, base_path, *flags, batching=True):
    """A running server of `base_path`, batched unless told otherwise."""
    if batching:
        file = pathlib.Path(folder) / "batching.config"
        file.write_text(BATCHING)
        flags = (*flags, "--enable_batching", f"--batching_parameters_file={file}")
    return ServerProcess(
        folder,
        "--model_name=translator",
        f"--model_base_path={base_path}",
        f"--tensorflow_intra_op_parallelism={INTRA_OP}",
        f"--tensorflow_inter_op_parallelism={INTER_OP}",
        *flags,
        wait=200,
    )


def ask(server, text):
    """Translates one sentence; returns the seconds it took."""
    message = request("translator", text=[text])
    return seconds_of(lambda: server.prediction.Predict(message, timeout=60))


def seconds_of(function):
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def closed_loop(server, seconds, clients=CLIENTS):
    """`clients` threads ask without a pause: (sentences per second, latencies)."""
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
    """Requests at random moments, `rate` a second, whether or not the last are answered."""
    chance, latencies, pending = random.Random(0), [], []
    due = time.perf_counter()
    ends = due + seconds
    while due < ends:
        due += chance.expovariate(rate)
        time.sleep(max(0.0, due - time.perf_counter()))
        message = request("translator", text=[chance.choice(TEXTS)])
        call = server.prediction.Predict.future(message, timeout=60)
        # From the moment it was due: a client that falls behind hides no latency.
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


def throughput(export, folder, seconds):
    """Sixteen clients with one sentence each, against batches of sixteen in process."""
    session = Session(newest(export)[-1])
    for size in (1, 4, CAP):
        session.run("translate", text=TEXTS[:size])
    with serve(folder, export, "--enable_model_warmup=false") as server:
        for _ in range(2):  # not counted: every batch size has been run once
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


def in_turn(session, server, seconds):
    """One sentence after the other, each in this process and over gRPC: two arrays of seconds."""
    chance, pairs, started = random.Random(0), [], time.perf_counter()
    while time.perf_counter() - started < seconds:
        text = [chance.choice(TEXTS)]
        message = request("translator", text=text)
        ways = [
            lambda text=text: session.run("translate", text=text),
            lambda message=message: server.prediction.Predict(message, timeout=60),
        ]
        turn = len(pairs) % 2  # neither is always first
        pair = [seconds_of(way) for way in (ways[::-1] if turn else ways)]
        pairs.append(pair[::-1] if turn else pair)
    return np.array(pairs).T


def overhead(export, folder, seconds):
    """One request alone, over gRPC and in this process with the same threads, in turn."""
    session = Session(newest(export)[-1], INTRA_OP, INTER_OP)
    found = {}
    with serve(folder, export, "--enable_model_warmup=false", batching=False) as server:
        in_turn(session, server, seconds / 10)
        bare, served = in_turn(session, server, seconds)
        found["translate_bare_ms"] = float(np.median(bare)) * 1e3
        found["translate_grpc_ms"] = float(np.median(served)) * 1e3
        # Sentences differ by more than this, so it is taken sentence by sentence.
        found["overhead_ms"] = float(np.median(served - bare)) * 1e3
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
            seconds / 3,
        )
        found["half_plus_two_overhead_ms"] = (medians["grpc"] - medians["bare"]) * 1e3
        found["half_plus_two_rest_overhead_ms"] = (medians["rest"] - medians["bare"]) * 1e3
    return found


def soak(export, folder, seconds):
    """32 clients, every signature, hostile inputs; a version comes, the old one goes."""
    old, new = (newest(export) * 2)[-2:]
    base = pathlib.Path(folder) / "swapped"
    shutil.copytree(old, base / "1")
    paths = {1: old, 2: new}
    answers = {n: serving_soak.answers(Session(path)) for n, path in paths.items()}
    with serve(folder, base, *PATIENT) as server:

        def swap():
            time.sleep(seconds / 3)
            shutil.copytree(new, base / "copying")
            (base / "copying").rename(base / "2")
            time.sleep(seconds / 3)
            shutil.rmtree(base / "1")

        swapping = threading.Thread(target=swap)
        swapping.start()
        found = serving_soak.run(server, answers, seconds)
        swapping.join()
        found["states"] = server.states("translator")
    return found


def memory(export, folder, seconds):
    """Resident memory of the server before and after 10,000 requests of every kind."""
    del seconds
    answers = {int(newest(export)[-1].name): serving_soak.answers(Session(newest(export)[-1]))}
    with serve(folder, export, *PATIENT) as server:
        # Arenas and pools fill with the first thousands: until every thread has met every request.
        serving_soak.run(server, answers, 240, requests=4000)
        sizes, asked = [server.memory()], 0
        for _ in range(5):
            asked += serving_soak.run(server, answers, 240, requests=2000)["requests"]
            sizes.append(server.memory())
    return {
        "requests": asked,
        "resident_mib": [size / 2**20 for size in sizes],
        "growth": sizes[-1] / sizes[0] - 1,
    }


def newest(export):
    """Paths of the versions, the newest last."""
    paths = [path for path in pathlib.Path(export).iterdir() if path.name.isdecimal()]
    return sorted(paths, key=lambda path: int(path.name))


PARTS = {"throughput": throughput, "overhead": overhead, "soak": soak, "memory": memory}


def throughput_rows(part):
    """Sentences a second and latencies."""
    return [
        ["in process, batches of 16", f"{part['in_process_per_second']:.1f} sentences/s", ""],
        [
            f"16 gRPC clients, batching ({part['batching']})",
            f"{part['batched_per_second']:.1f} sentences/s",
            f"{part['share']:.0%} of in process; goal: {GOALS['share']}",
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
            f"goal: {GOALS['ratio']}",
        ],
    ]


def overhead_rows(part):
    """What the server adds to one request."""
    return [
        [
            "one translation, bare session / gRPC",
            f"{part['translate_bare_ms']:.2f} / {part['translate_grpc_ms']:.2f} ms",
            f"overhead {part['overhead_ms']:.2f} ms; goal: {GOALS['overhead']}",
        ],
        [
            "x / 2 + 2, overhead of gRPC / REST",
            f"{part['half_plus_two_overhead_ms']:.2f} / "
            f"{part['half_plus_two_rest_overhead_ms']:.2f} ms",
            "",
        ],
    ]


def soak_rows(part):
    """Answers while versions are swapped."""
    return [
        [
            f"32 clients, {part['seconds']:.0f} s, versions swapped",
            f"{part['requests']} requests",
            f"{part['wrong']} wrong answers; goal: {GOALS['soak']}",
        ]
    ]


def memory_rows(part):
    """Resident memory."""
    sizes = ", ".join(f"{size:.0f}" for size in part["resident_mib"])
    return [
        [
            f"resident memory before and after each fifth of {part['requests']:,} requests",
            f"{sizes} MiB",
            f"growth {part['growth']:.1%}; goal: {GOALS['memory']}",
        ]
    ]


ROWS = {
    "throughput": throughput_rows,
    "overhead": overhead_rows,
    "soak": soak_rows,
    "memory": memory_rows,
}


def page(numbers):
    """results/serving.md."""
    rows = [row for part in PARTS if part in numbers for row in ROWS[part](numbers[part])]
    text = (
        "# The development server under load\n\n`python benchmarks/serving_load.py EXPORT`, "
        f"{numbers['machine']}, {numbers['versions']}.\nClients and server share the machine. "
        f"The server's sessions\nhave {INTRA_OP} thread within and {INTER_OP} between operations; "
        "so has the bare session of the overhead. In process, batches have\nas many threads as "
        "TensorFlow likes.\n\n"
    )
    models = "".join(f"\n- {part}: {numbers[part]['model']}" for part in PARTS if part in numbers)
    return f"{text}{measure.table(['what', 'measured', 'goal'], rows)}\nModels:\n{models}\n"


def describe(export):
    """The model in words, from what the export says of itself."""
    file = newest(export)[-1] / "assets.extra" / "keras_tfmr.json"
    if not file.exists():
        return "unknown"
    facts = json.loads(file.read_text())
    decoding = facts["decoding"]
    return (
        f"{facts['model']['class']}, {facts['parameters']:,} parameters, {decoding['beams']} "
        f"beams, at most {decoding['max_length']} tokens, {facts['precision']}"
    )


def main():
    """Measures the parts asked for and rewrites the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("export", help="folder of versions")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=60, help="of each part [%(default)s]")
    options = parser.parse_args()
    file = measure.RESULTS / "serving.json"
    numbers = json.loads(file.read_text()) if file.exists() else {}
    numbers["machine"] = measure.machine()
    numbers["versions"] = measure.versions("tensorflow", "grpcio", "aiohttp")
    tf.get_logger().setLevel("ERROR")
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            numbers[part] = PARTS[part](options.export, folder, options.seconds)
        numbers[part]["model"] = describe(options.export)
        print(part, json.dumps(numbers[part], indent=1), flush=True)
        measure.write("serving", page(numbers), numbers)


if __name__ == "__main__":
    main()
