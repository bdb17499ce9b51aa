"""Measures how long it takes to serve a trained run: its export, and the start of a server.

    python benchmarks/exports.py RUN

Each step is the command that users run: `serving/export.py`, which checks the export, and
`serving/server.py` until it answers that the model is available, which it does after its last
warm-up request. Processor seconds hardly depend on what else runs. Writes results/exports.md and
.json.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import harness

PRECISIONS = ("float32", "bfloat16", "int8")


def export(run, models, precision):
    """Exports and checks."""
    used = harness.command("serving/export.py", run, "--output", models, "--precision", precision)
    size = sum(file.stat().st_size for file in models.rglob("*") if file.is_file())
    return {"rate": 1 / used["seconds"], "mb": size / 1e6, **used}


def start(models):
    """Starts the development server and waits until the model is available."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0)), two.bind(("127.0.0.1", 0))
        grpc, rest = one.getsockname()[1], two.getsockname()[1]
    command = [sys.executable, harness.ROOT / "serving" / "server.py", f"--port={grpc}",
               f"--rest_api_port={rest}", f"--model_base_path={models}"]  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not available(f"http://127.0.0.1:{rest}/v1/models/default"):
            if process.poll() is not None or time.perf_counter() - begun > 300:
                raise RuntimeError(f"the server did not start: {process.returncode}")
            time.sleep(0.05)
        seconds = time.perf_counter() - begun
        proc = Path(f"/proc/{process.pid}")
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        processor = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        mib = int(re.search(r"VmHWM:\s+(\d+)", (proc / "status").read_text())[1]) / 1024
    finally:
        process.terminate()
        process.wait(60)
    return {"rate": 1 / seconds, "seconds": seconds, "processor_seconds": processor, "mib": mib}


def available(address):
    """Whether the server says that the model is available."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return b'"AVAILABLE"' in answer.read()
    except OSError:
        return False


def main():
    parser, add, _ = harness.parser(__doc__)
    add("run", type=Path, nargs="?", help="folder of a finished run")
    args = parser.parse_args()
    if not (args.run or args.quick):
        parser.error("RUN is needed")
    precisions = PRECISIONS[: 1 if args.quick else None]
    with tempfile.TemporaryDirectory() as folder:
        run, made = args.run or harness.tiny_run(Path(folder)), {}

        def exported(precision):
            made[precision] = Path(tempfile.mkdtemp(dir=folder)) / "models"
            return export(run, made[precision], precision)

        numbers = harness.about("tensorflow", "keras")
        numbers["steps"] = {}
        for word, step in (("export", exported), ("server", lambda p: start(made[p]))):
            sides = {
                f"{word}, {precision}": {
                    "default": lambda step=step, precision=precision: step(precision)
                }
                for precision in precisions
            }
            numbers["steps"] |= harness.compare(sides, args.turns, quick=args.quick)
    rows = [
        [name, cell["seconds"], cell["processor_seconds"], cell["mib"], cell.get("mb", "")]
        for name, cell in numbers["steps"].items()
    ]
    header = ["medians", "s", "processor s", "memory, MiB", "export, MB"]
    body = "Seconds of whole commands, imports included.\n\n" + harness.table(header, rows)
    harness.report("exports", "Exports and starts", body, numbers, quick=args.quick)


if __name__ == "__main__":
    main()
