"""The parts of benchmarks/serving_load.py, each of which measures one thing and shows it."""
