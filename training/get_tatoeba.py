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
import re
import shutil
import sys
import urllib.request

import numpy as np

from training.corpus.held_out import clean_pairs
from training.corpus.read import in_memory
from training.corpus.sources import SUMS, TATOEBA
from training.files import RunError

EXPORTS = "https://downloads.tatoeba.org/exports/per_language"
SPLITS = ("train", "validation", "test")
HELD_OUT = 1000  # pairs in validation and in test, each at most a twentieth of all
# A line of sentences: what it is, and its number and text.
SENTENCE = ("`number<TAB>language<TAB>sentence`", r"(\d+)\t[^\t]*\t([^\t]*)")
SEED = 1  # of the choice of held-out pairs
ATTRIBUTION = """Sentence pairs of Tatoeba, https://tatoeba.org, by its contributors.
Licence: CC BY 2.0 FR, https://creativecommons.org/licenses/by/2.0/fr/
Made from the exports {names}: direct translations, composed (NFC), without duplicates, split so
that no sentence of validation.tsv or test.tsv occurs in another file.
"""


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    add("pair", help="two ISO 639-3 codes, source first, as in por-eng")
    add("--folder", metavar="DIR", type=pathlib.Path, default=TATOEBA, help="folder to write to")
    exports = "folder with downloaded exports, to read instead"
    add("--exports", metavar="DIR", type=pathlib.Path, help=exports)
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    from training.process import command

    return command("get_tatoeba.py", get, parse_arguments(arguments))


def get(options):
    """Downloads the exports, unless a folder of them is given, and builds the splits."""
    folder = options.folder / options.pair
    names = export_names(options.pair)
    if options.exports is None:
        options.exports = folder / "exports"
        download(names, options.exports)
    counts = build([options.exports / pathlib.Path(name).name for name in names], folder)
    print(f"{folder}: " + ", ".join(f"{count:,} {name} pairs" for name, count in counts.items()))
    print((folder / SUMS).read_text(), end="")


def export_names(pair):
    """The names of the exports for a pair of languages, such as `por-eng`.

    Raises:
        RunError: If the pair is not two ISO 639-3 codes.
    """
    codes = re.fullmatch("([a-z]{3})-([a-z]{3})", pair)
    if not codes:
        raise RunError(
            f"Expected two language codes of three letters, as in por-eng. Received: {pair!r}"
        )
    source, target = codes.groups()
    return [
        f"{source}/{source}_sentences.tsv.bz2",
        f"{target}/{target}_sentences.tsv.bz2",
        f"{source}/{source}-{target}_links.tsv.bz2",
    ]


def download(names, folder):
    """Downloads those of the exports that are not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / pathlib.Path(name).name
        if path.exists():
            continue
        url, part = f"{EXPORTS}/{name}", path.with_suffix(".part")
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise RunError(
                f"Cannot download {url} ({error}). Download it on another machine and put it into "
                f"{folder}"
            ) from error
        os.replace(part, path)


def build(exports, folder):
    """Writes `train.tsv`, `validation.tsv` and `test.tsv`.

    Args:
        exports: The paths of the sentences of both languages, and of the links between them.
        folder: The folder to write to; its `SHA256SUMS` is the same for the same exports.

    Returns:
        {split: number of pairs}.

    Raises:
        RunError: If an export is missing or does not have Tatoeba's form.
    """
    links = [(int(a), int(b)) for a, b in rows(exports[2], "two numbers", r"(\d+)\t(\d+)")]
    wanted = {number for link in links for number in link}
    texts = {
        int(number): text
        for path in exports[:2]
        for number, text in rows(path, *SENTENCE)
        if int(number) in wanted
    }
    pairs = [(texts[a], texts[b]) for a, b in links if a in texts and b in texts]
    pairs = clean_pairs([(in_memory(pairs), "")]).pairs
    if len(pairs) < 20:
        raise RunError(f"{folder.name}: expected at least 20 pairs to split, found {len(pairs)}")
    splits, sums = split(pairs), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in splits.items():
        content = "".join(f"{source}\t{target}\n" for source, target in found).encode()
        (folder / f"{name}.tsv").write_bytes(content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}.tsv\n")
    names = ", ".join(path.name for path in exports)
    (folder / "ATTRIBUTION").write_text(ATTRIBUTION.format(names=names))
    (folder / SUMS).write_text("".join(sums))
    return {name: len(found) for name, found in splits.items()}


def split(pairs):
    """Training, validation and test pairs; the latter share no sentence with any other split."""
    count = min(HELD_OUT, len(pairs) // 20)
    chosen = np.random.default_rng(SEED).permutation(len(pairs))[: 2 * count].tolist()
    used = collections.Counter(side for i in chosen for side in enumerate(pairs[i]))
    # Pairs of the test set that share a sentence with the validation set are dropped.
    groups = [chosen[:count], chosen[count:]]
    sides = [{side for i in group for side in enumerate(pairs[i])} for group in groups]
    groups[1] = [i for i in groups[1] if sides[0].isdisjoint(enumerate(pairs[i]))]
    train = [pair for pair in pairs if not any(side in used for side in enumerate(pair))]
    held_out = ([pairs[i] for i in sorted(group)] for group in groups)
    return dict(zip(SPLITS, (train, *held_out), strict=True))


def rows(path, what, form):
    """Yields what each line of an export holds: the groups of the regular expression `form`."""
    try:
        with bz2.open(path, "rt", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                found = re.fullmatch(form, line.rstrip("\r\n"))
                if not found:
                    raise RunError(f"{path}, line {number}: expected {what}, found {line[:80]!r}")
                yield found.groups()
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: download it first") from error
    except (EOFError, OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: not a complete export ({error})") from error


if __name__ == "__main__":
    sys.exit(main())
