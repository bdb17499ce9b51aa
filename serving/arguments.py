"""Types of the commands' arguments: what is wrong with one is said before any work begins."""

import argparse
import math
from pathlib import Path

from keras_tfmr._files import check_writable


def number_from(kind, lowest, most=math.inf):
    """The type of an option that is an int or a float, from `lowest` to `most`."""

    def read(text):
        value = kind(text)
        if not lowest <= value <= most or value == math.inf:
            to = f" to {most}" if most < math.inf else ""
            raise argparse.ArgumentTypeError(f"must be from {lowest}{to}. Received: {text}")
        return value

    read.__name__ = kind.__name__  # argparse names it if the text is no number
    return read


port = number_from(int, 0, 65535)


def file_to_read(text):
    """The type of an option that names a file to read, as a path."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


def picture(text):
    """The type of an option that names a picture to write."""
    if Path(text).suffix != ".png":
        raise argparse.ArgumentTypeError(f"must end in .png. Received: {text}")
    try:
        check_writable(Path(text))
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
