"""Measures overhead, throughput and endurance of the development server with a translator.

    python benchmarks/serving_load.py EXPORT                 # every part
    python benchmarks/serving_load.py EXPORT --parts soak    # one part; other results stay

EXPORT is a folder of versions (a server's --model_base_path). For the part `memory`, which asks for
thousands of translations, use a tiny model. The server runs in a process of its own, on the same
machine as the client. Results go to results/serving.md and .json.
"""

import argparse
import json
import tempfile

import tensorflow as tf

from benchmarks import measure
from benchmarks.serving_parts import endurance, overhead, throughput
from benchmarks.serving_parts.setting import INTER_OP, INTRA_OP, newest

PARTS = {
    "throughput": (throughput.run, throughput.rows),
    "overhead": (overhead.run, overhead.rows),
    "soak": (endurance.soak, endurance.soak_rows),
    "memory": (endurance.memory, endurance.memory_rows),
}


def page(numbers):
    """The text of results/serving.md."""
    rows = [row for part in PARTS if part in numbers for row in PARTS[part][1](numbers[part])]
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
    """Describes the model, from the files of the export."""
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
    """Measures the chosen parts and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("export", help="folder of versions")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--seconds", type=float, default=60, help="seconds of each part; default: %(default)s"
    )
    parser.add_argument("--dry", action="store_true", help="do not write the results")
    options = parser.parse_args()
    file = measure.RESULTS / "serving.json"
    numbers = json.loads(file.read_text()) if file.exists() else {}
    numbers["machine"] = measure.machine()
    numbers["versions"] = measure.versions("tensorflow", "grpcio", "aiohttp", "uvloop")
    tf.get_logger().setLevel("ERROR")
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            numbers[part] = PARTS[part][0](options.export, folder, options.seconds)
        numbers[part]["model"] = describe(options.export)
        print(part, json.dumps(numbers[part], indent=1), flush=True)
        if not options.dry:
            measure.write("serving", page(numbers), numbers)


if __name__ == "__main__":
    main()
