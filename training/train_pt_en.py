"""Trains a translator from plain text to a SavedModel that can be served.

Without arguments it trains on a built-in Portuguese-English phrasebook for a few minutes, a
demonstration that needs no network. With --data it trains on your own corpus, in any two languages.
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

    settings = parse_arguments(__doc__, arguments)
    from training.run.command import run
    from training.run.task import Translation

    return run("train_pt_en.py", settings, STARTED, Translation)


if __name__ == "__main__":
    sys.exit(main())
