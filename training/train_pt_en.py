"""Trains a translator from plain text to a SavedModel that can be served.

Without arguments it learns a built-in Portuguese-English phrasebook of everyday sentences in a few
minutes, without a network. With --data it trains on your own corpus, in any two languages.
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

    settings = parse_arguments(__doc__, arguments)
    import_tensorflow()
    from training.train import command

    return command("train_pt_en.py", settings)


if __name__ == "__main__":
    sys.exit(main())
