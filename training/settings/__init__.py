"""The settings of a run: turns arguments and files into one checked config.

Knows nothing of models, data or TensorFlow, so that `--help` and errors are instant.
"""
