"""Portuguese and English sentence pairs of everyday language, to try the scripts without data.

| file | lines of |
|---|---|
| `train.tsv.gz`, `validation.tsv`, `test.tsv` | Portuguese, English, its type |
| `pairs.tsv` | Portuguese, English; to learn from, too |
| `everyday.tsv` | Portuguese, English; only measured on, by topic from family to plans |

The first three were written once by a grammar, which the history has (`git log -- '*/grammar.py'`):
those of its sentences that bring something new. The others were written by hand. No sentence of
one file that is measured on is in another file.
"""

import gzip
import itertools
from pathlib import Path

FOLDER = Path(__file__).parent
LANGUAGES = ("pt", "en")


def path(split):
    """The file of a split: `train`, `validation` or `test`."""
    return FOLDER / ("train.tsv.gz" if split == "train" else f"{split}.tsv")


def pairs(count=None):
    """The first pairs of `train`, or all, a list of (Portuguese, English)."""
    with gzip.open(path("train"), "rt", encoding="utf-8") as file:
        return [tuple(line.split("\t")[:2]) for line in itertools.islice(file, count)]


def everyday():
    """The pairs of `everyday.tsv`, a list of (Portuguese, English).

    >>> everyday()[1]
    ('O meu irmão ainda está dormindo.', 'My brother is still sleeping.')
    """
    text = (FOLDER / "everyday.tsv").read_text(encoding="utf-8")
    return [tuple(line.split("\t")) for line in text.splitlines()]


def cells(line, task):
    """The cells of a line of three columns that a task learns from, as a line of `--data`.

    >>> cells("Ele vem.\\tHe's coming.\\tdoing", "classify")
    ['Ele vem.', 'doing']
    """
    portuguese, english, kind = line.split("\t")
    if task == "translation":
        return [portuguese, english]
    return [portuguese, kind] if task == "classify" else [english]
