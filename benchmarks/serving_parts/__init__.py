"""The parts of benchmarks/serving_load.py; each measures one thing and formats its results."""
