"""Trains a translator from plain text to a SavedModel that can be served.

Without arguments it trains on a built-in Portuguese-English phrasebook for a few minutes, a
demonstration that needs no network. With --data it trains on your own corpus, in any two languages.
After an interruption, run the same command again to resume.
"""

import os
import signal
import sys
import time

STARTED = time.monotonic()  # the budget includes the imports

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from training.run.settings import parse_arguments

    return run(parse_arguments(__doc__, arguments))


def run(settings, make_task=None):
    """Trains as a `TrainingConfig` says; returns the exit status.

    Args:
        settings: A resolved `TrainingConfig`.
        make_task: A function from the settings to the task; None for a translation.
    """
    from training.run.files import RunError
    from training.run.interrupts import Interrupts
    from training.run.session import train
    from training.run.task import Translation

    interrupts = Interrupts()
    try:
        with interrupts:
            done = train(settings, STARTED, interrupts, make_task or Translation)
    except RunError as error:
        print(f"train_pt_en.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to resume.", file=sys.stderr)
        return 128 + (interrupts.received or signal.SIGINT)
    return 0 if done else 128 + (interrupts.received or signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
