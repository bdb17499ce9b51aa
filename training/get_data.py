"""Downloads sentence pairs of Tatoeba or Multi30k, and writes their splits.

    python training/get_data.py tatoeba:por-eng
    python training/train_pt_en.py --data tatoeba:por-eng

The second command runs the first if need be. The pairs are by others: keep the file ATTRIBUTION,
which has their terms, beside them.
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
    add("name", help="tatoeba:por-eng, two ISO 639-3 codes, source first; or multi30k:en-de")
    folder = "folder to write to (default: KERAS_HOME/datasets/tatoeba or multi30k)"
    add("--folder", metavar="DIR", type=pathlib.Path, help=folder)
    downloads = "folder with downloaded files, to read instead"
    add("--downloads", metavar="DIR", type=pathlib.Path, help=downloads)
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    from training.command.process import command, in_two_steps

    return command("get_data.py", in_two_steps, prepare, options)


def prepare(options):
    """Checks the name and the folders; returns the function that gets the pairs."""
    from training.command.disk import RunError, check_writable
    from training.corpus.sources import DATA_SETS

    name, _, pair = options.name.partition(":")
    if name not in DATA_SETS:
        raise RunError(f"Expected NAME:PAIR of {', '.join(DATA_SETS)}. Received: {options.name!r}")
    data_set = DATA_SETS[name]
    data_set.files(pair)
    if options.downloads:
        data_set.check_downloads(options.downloads, pair)
    folder = (options.folder or data_set.cache()) / pair
    check_writable(folder, is_folder=True)
    return lambda: get(data_set, pair, folder, options.downloads)


def get(data_set, pair, folder, downloads):
    """Downloads the files, unless a folder of them is given, and writes the splits."""
    from training.corpus.data_set import SUMS

    counts = data_set.fetch(pair, folder, downloads)
    print(f"{folder}: " + ", ".join(f"{count:,} {name} pairs" for name, count in counts.items()))
    print((folder / SUMS).read_text(), end="")


if __name__ == "__main__":
    sys.exit(main())
