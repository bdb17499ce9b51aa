"""Downloads sentence pairs from Tatoeba (https://tatoeba.org), cleans and splits them.

    python training/get_tatoeba.py por-eng
    python training/train_pt_en.py --data tatoeba:por-eng

It needs a network. The sentences are by Tatoeba's contributors, under CC BY 2.0 FR: keep the file
ATTRIBUTION beside them.
"""

import bz2
import collections
import hashlib
import os
import pathlib
import shutil
import sys
import urllib.error
import urllib.request

import numpy as np

from training.encoded import clean_pairs
from training.sources import SUMS, TATOEBA
from training.text_blocks import CorpusError, in_memory

EXPORTS = "https://downloads.tatoeba.org/exports/per_language"
SPLITS = ("train", "validation", "test")
HELD_OUT = 1000  # pairs in validation and in test, each at most a twentieth of all
ATTRIBUTION = """Sentence pairs of Tatoeba, https://tatoeba.org, by its contributors.
Licence: CC BY 2.0 FR, https://creativecommons.org/licenses/by/2.0/fr/
Made from the exports {names}: direct translations, composed (NFC), without duplicates, split so
that no sentence of validation.tsv or test.tsv occurs in another file.
"""


def export_names(pair):
    """The names of the exports for a pair of languages, such as `por-eng`.

    Raises:
        CorpusError: If the pair is not two ISO 639-3 codes.
    """
    codes = pair.split("-")
    if len(codes) != 2 or not all(len(c) == 3 and c.isalpha() and c.islower() for c in codes):
        raise CorpusError(
            f"Expected two language codes of three letters, as in por-eng. Received: {pair!r}"
        )
    source, target = codes
    return [
        f"{source}/{source}_sentences.tsv.bz2",
        f"{target}/{target}_sentences.tsv.bz2",
        f"{source}/{source}-{target}_links.tsv.bz2",
    ]


def download(pair, folder):
    """Downloads the missing exports of a pair of languages into a folder.

    Raises:
        CorpusError: If an export cannot be downloaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in export_names(pair):
        path = folder / pathlib.Path(name).name
        if path.exists():
            continue
        url, part = f"{EXPORTS}/{name}", path.with_suffix(".part")
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            part.unlink(missing_ok=True)
            raise CorpusError(
                f"Cannot download {url} ({error}). Download it on another machine and put it into "
                f"{folder}"
            ) from error
        os.replace(part, path)


def build(pair, exports, folder, seed=1):
    """Writes `train.tsv`, `validation.tsv` and `test.tsv` from exports.

    Args:
        pair: Two codes such as `por-eng`.
        exports: The folder of the exports.
        folder: The folder to write to; its `SHA256SUMS` is the same for the same exports.
        seed: Seed of the choice of held-out pairs.

    Returns:
        {split: number of pairs}.

    Raises:
        CorpusError: If an export is missing or does not have Tatoeba's form.
    """
    paths = [exports / pathlib.Path(name).name for name in export_names(pair)]
    links = list(_links(paths[2]))
    wanted = {number for link in links for number in link}
    texts = {number: text for path in paths[:2] for number, text in _sentences(path, wanted)}
    pairs = [(texts[a], texts[b]) for a, b in links if a in texts and b in texts]
    pairs = clean_pairs(in_memory(pairs)).pairs
    if len(pairs) < 20:
        raise CorpusError(f"{pair}: expected at least 20 pairs to split, found {len(pairs)}")
    splits = _split(pairs, seed)
    folder.mkdir(parents=True, exist_ok=True)
    sums = []
    for name, rows in splits.items():
        content = "".join(f"{source}\t{target}\n" for source, target in rows).encode()
        (folder / f"{name}.tsv").write_bytes(content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}.tsv\n")
    names = ", ".join(path.name for path in paths)
    (folder / "ATTRIBUTION").write_text(ATTRIBUTION.format(names=names))
    (folder / SUMS).write_text("".join(sums))
    return {name: len(rows) for name, rows in splits.items()}


def _split(pairs, seed):
    """Training, validation and test pairs; the latter share no sentence with any other split."""
    count = min(HELD_OUT, len(pairs) // 20)
    chosen = np.random.default_rng(seed).permutation(len(pairs))[: 2 * count].tolist()
    used = collections.Counter(side for i in chosen for side in enumerate(pairs[i]))
    # Pairs of the test set that share a sentence with the validation set are dropped.
    groups = [chosen[:count], chosen[count:]]
    sides = [{side for i in group for side in enumerate(pairs[i])} for group in groups]
    groups[1] = [i for i in groups[1] if sides[0].isdisjoint(enumerate(pairs[i]))]
    train = [pair for pair in pairs if not any(side in used for side in enumerate(pair))]
    held_out = ([pairs[i] for i in sorted(group)] for group in groups)
    return dict(zip(SPLITS, (train, *held_out), strict=True))


def _links(path):
    for number, line in enumerate(_read(path), 1):
        columns = line.split("\t")
        if len(columns) != 2 or not all(column.isdigit() for column in columns):
            raise CorpusError(f"{path}, line {number}: expected two numbers, found {line[:80]!r}")
        yield tuple(map(int, columns))


def _sentences(path, wanted):
    for number, line in enumerate(_read(path), 1):
        columns = line.split("\t")
        if len(columns) != 3 or not columns[0].isdigit():
            raise CorpusError(
                f"{path}, line {number}: expected `number<TAB>language<TAB>sentence`, found "
                f"{line[:80]!r}"
            )
        if int(columns[0]) in wanted:
            yield int(columns[0]), columns[2]


def _read(path):
    try:
        with bz2.open(path, "rt", encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\r\n")
    except FileNotFoundError as error:
        raise CorpusError(f"{path} is missing: download it first") from error
    except (EOFError, OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: not a complete export ({error})") from error


def main(arguments=None):
    """Runs the command line; returns the exit status."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    parser.add_argument("pair", help="two ISO 639-3 codes, source first, as in por-eng")
    parser.add_argument(
        "--folder", metavar="DIR", type=pathlib.Path, default=TATOEBA, help="folder to write to"
    )
    parser.add_argument(
        "--exports",
        metavar="DIR",
        type=pathlib.Path,
        help="folder with downloaded exports, to read instead",
    )
    args = parser.parse_args(arguments)
    folder = args.folder / args.pair
    try:
        if args.exports is None:
            args.exports = folder / "exports"
            download(args.pair, args.exports)
        counts = build(args.pair, args.exports, folder)
    except CorpusError as error:
        print(f"get_tatoeba.py: error: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: " + ", ".join(f"{count:,} {name} pairs" for name, count in counts.items()))
    print((folder / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
