"""Trains a classifier or a language model from plain text to a SavedModel.

    python training/train_text.py --task classify --data reviews.tsv
    python training/train_text.py --task language --data texts.txt

Without --data it trains on the sentences of a built-in phrasebook, which needs no network.
After an interruption, run the same command again to resume.
"""

if __name__ == "__main__":
    from training.command.scripts import begin_quietly

    begin_quietly("Stopped. Run the same command to resume.")

import sys


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from keras_tfmr.compat import import_tensorflow
    from training.settings.command_line import parse_arguments
    from training.settings.training_config import TEXT_TASKS

    settings = parse_arguments(__doc__, arguments, TEXT_TASKS)
    import_tensorflow()
    from training.train import command

    return command("train_text.py", settings)


if __name__ == "__main__":
    sys.exit(main())
