"""Trains a classifier, a tagger or a language model from plain text to a SavedModel.

    python training/train_text.py --task classify --data reviews.tsv
    python training/train_text.py --task tag
    python training/train_text.py --task masked --data texts.txt --run runs/encoder
    python training/train_text.py --task classify --data few.tsv --start_from runs/encoder

Without --data it trains on sentences of a built-in grammar, a demonstration that needs no network.
After an interruption, run the same command again to resume.
"""

import os
import sys
import time

STARTED = time.monotonic()  # the budget includes the imports

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from training.run.settings import parse_arguments
    from training.text.settings import TextConfig

    settings = parse_arguments(__doc__, arguments, TextConfig)
    from training.run.command import run
    from training.text.tasks import make_task

    return run("train_text.py", settings, STARTED, make_task)


if __name__ == "__main__":
    sys.exit(main())
