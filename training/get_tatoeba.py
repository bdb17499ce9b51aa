"""Downloads sentence pairs from Tatoeba (https://tatoeba.org), cleans and splits them.

    python training/get_tatoeba.py por-eng
    python training/train_pt_en.py --data tatoeba:por-eng

The second command runs the first if need be. The sentences are by Tatoeba's
contributors, under CC BY 2.0 FR: keep the file ATTRIBUTION beside them.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import pathlib
import sys


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from training.command import scripts

    parser = scripts.parser(__doc__)
    add = parser.add_argument
    add("pair", help="two ISO 639-3 codes, source first, as in por-eng")
    folder = "folder to write to (default: KERAS_HOME/datasets/tatoeba)"
    add("--folder", metavar="DIR", type=pathlib.Path, help=folder)
    exports = "folder with downloaded exports, to read instead"
    add("--exports", metavar="DIR", type=pathlib.Path, help=exports)
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    from training.command.process import command, in_two_steps

    return command("get_tatoeba.py", in_two_steps, prepare, options)


def prepare(options):
    """Checks the names and the folders; returns the function that gets the pairs."""
    from training.command.disk import check_writable
    from training.corpus import tatoeba

    names = tatoeba.export_names(options.pair)
    if options.exports:
        tatoeba.check_exports(options.exports, names)
    folder = (options.folder or tatoeba.cache()) / options.pair
    check_writable(folder, is_folder=True)
    return lambda: get(options, folder)


def get(options, folder):
    """Downloads the exports, unless a folder of them is given, and builds the splits."""
    from training.corpus import tatoeba

    counts = tatoeba.fetch(options.pair, folder, options.exports)
    print(f"{folder}: " + ", ".join(f"{count:,} {name} pairs" for name, count in counts.items()))
    print((folder / tatoeba.SUMS).read_text(), end="")


if __name__ == "__main__":
    sys.exit(main())
