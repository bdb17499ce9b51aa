"""Downloads sentence pairs from Tatoeba, cleans and splits them, for `--data tatoeba:PAIR`.

    python training/get_tatoeba.py por-eng

It needs a network. The sentences are by Tatoeba's contributors, under CC BY 2.0 FR: keep the file
ATTRIBUTION beside them.
"""

import sys
from pathlib import Path


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from keras_tfmr import _command_line
    from training.corpus import tatoeba
    from training.corpus.files import CorpusError

    parser = _command_line.parser(__doc__)
    parser.add_argument("pair", help="two ISO 639-3 codes, source first, as in por-eng")
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, default=tatoeba.FOLDER, help="folder to write to"
    )
    parser.add_argument(
        "--exports",
        metavar="DIR",
        type=Path,
        help="folder with downloaded exports, to read instead",
    )
    args = parser.parse_args(arguments)
    folder = args.folder / args.pair
    try:
        if args.exports is None:
            args.exports = folder / "exports"
            tatoeba.download(args.pair, args.exports)
        counts = tatoeba.build(args.pair, args.exports, folder)
    except CorpusError as error:
        print(f"get_tatoeba.py: error: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: " + ", ".join(f"{count:,} {name} pairs" for name, count in counts.items()))
    print((folder / tatoeba.SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
