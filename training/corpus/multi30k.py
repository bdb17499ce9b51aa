"""Multi30k: captions of photographs in English, and their translations into German.

Reference: Elliott et al. 2016 (arXiv 1605.00459).
"""

import gzip
import hashlib

from training.command.disk import RunError
from training.corpus.data_set import SPLITS, DataSet

FILES = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
NAMES = ("train", "val", "test_2016_flickr")  # in the order of `SPLITS`
# SHA-256 of the text within each file.
DIGESTS = {
    "train.en.gz": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de.gz": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "val.en.gz": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de.gz": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "test_2016_flickr.en.gz": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de.gz": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
}
TERMS = """Captions of Multi30k, https://github.com/multi30k/dataset: Elliott, Frank, Sima'an and
Specia 2016 (arXiv 1605.00459), after Flickr30k. For research; the terms are in that repository.
"""


def files(pair):
    """{name: URL} of the files of a pair, `en-de` or `de-en`."""
    if pair not in ("en-de", "de-en"):
        raise RunError(f"Expected multi30k:en-de or multi30k:de-en. Received: {pair!r}")
    names = [f"{name}.{code}.gz" for name in NAMES for code in pair.split("-")]
    return {name: f"{FILES}/{name}" for name in names}


def splits(paths):
    """The pairs of each split, as they are published.

    Args:
        paths: The files of source and target, split by split.

    Raises:
        RunError: If a file is missing or is not the published one.
    """
    sides = [lines(path) for path in paths]
    pairs = [list(zip(*both, strict=True)) for both in zip(sides[::2], sides[1::2], strict=True)]
    return dict(zip(SPLITS, pairs, strict=True))


def lines(path):
    """The captions of a file, a list of str."""
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise RunError(f"{path}: not a complete file ({error}): delete it and try again") from error
    if hashlib.sha256(text).hexdigest() != DIGESTS[path.name]:
        raise RunError(f"{path} is not the published file: its checksum is another one")
    # Some captions hold a tab or begin with a space.
    return [" ".join(line.split()) for line in text.decode().split("\n")[:-1]]


MULTI30K = DataSet("multi30k", files, splits, TERMS)
