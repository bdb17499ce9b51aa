"""Measures how long it takes to serve a trained run: its export, and the start of a server.

    python benchmarks/exports.py RUN

Each step is the command that users run: `serving/export.py`, which checks the export, and
`serving/server.py` until it says that it serves the model, after its last warm-up request.
Processor seconds hardly depend on what else runs. Writes results/exports.md and .json.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

PRECISIONS = ("float32", "bfloat16", "int8")


def export(run, models, precision):
    """Exports and checks."""
    used = harness.command("serving/export.py", run, "--output", models, "--precision", precision)
    size = sum(file.stat().st_size for file in models.rglob("*") if file.is_file())
    return {"rate": 1 / used["seconds"], "mb": size / 1e6, **used}


def start(models):
    """Starts the development server and waits until it serves."""
    script = harness.ROOT / "serving" / "server.py"
    flags = ["--port=0", "--rest_api_port=0", f"--model_base_path={models}"]
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, script, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        while b"Serving version" not in (line := process.stderr.readline()):
            if not line:
                raise RuntimeError("the server did not start")
        seconds = time.perf_counter() - begun
        process.terminate()
        return {"rate": 1 / seconds, "seconds": seconds, **harness.used(process)}


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
