"""Our side of the decoding benchmark: it still runs, and its columns write the same tokens."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = """
import json, decode_engines as engines
calls = engines.in_process(engines.Setting("tiny", 2, max_length=3, tokens=3), None)
source = engines.source(batch=2, length=5)
print(json.dumps([calls[column](source).tolist() for column in ("graph", "XLA")]))
"""


def test_our_decoding_engines_agree():
    # A process of its own: the engine sets TensorFlow's threads, which must come first.
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT / "benchmarks",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    graph, compiled = json.loads(done.stdout.splitlines()[-1])
    assert graph == compiled and [len(row) for row in graph] == [3, 3]
