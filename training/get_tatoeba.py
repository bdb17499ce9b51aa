"""Downloads sentence pairs of Tatoeba, cleans and splits them, for `--data tatoeba:PAIR`.

    python training/get_tatoeba.py por-eng

needs a network once. The sentences are by Tatoeba's contributors, under CC BY 2.0 FR: the file
ATTRIBUTION beside them says so and goes where they go.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from training.corpus import tatoeba
    from training.corpus.files import CorpusError

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pair", help="two codes of ISO 639-3, source first, as in por-eng")
    parser.add_argument(
        "--folder", type=Path, default=tatoeba.FOLDER, help="(default: %(default)s)"
    )
    parser.add_argument(
        "--exports", type=Path, help="folder of exports that were downloaded before"
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
