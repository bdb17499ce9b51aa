"""What a run is asked to do: arguments and files of settings enter, one checked config leaves.

Knows nothing of models, data or TensorFlow, so that `--help` and errors are instant.
"""
