"""The parts of benchmarks/serving_load.py, each of which measures one thing and shows it."""

import sys
from pathlib import Path

# Their models and server processes are those of the tests.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
