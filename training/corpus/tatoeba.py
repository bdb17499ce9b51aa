"""Sentence pairs of Tatoeba (https://tatoeba.org): downloaded once, cleaned and split."""

import bz2
import collections
import fcntl
import hashlib
import http.client
import os
import pathlib
import re
import sys
import time
import urllib.error
import urllib.request

import numpy as np

from training.command.disk import RunError, explained, write_atomically
from training.corpus.filter import Cleaner, Rules
from training.corpus.read import in_memory

EXPORTS = "https://downloads.tatoeba.org/exports/per_language"
SUMS = "SHA256SUMS"  # written last
FAILURES, PAUSE, TIMEOUT = 3, 1.0, 20.0  # failures in a row, seconds after each, seconds of silence
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


def cache():
    """The folder of all pairs: beside Keras's own data sets, which KERAS_HOME moves."""
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    return pathlib.Path(home, "datasets", "tatoeba")


def split_path(name, split):
    """The file of a split of a pair of languages, which is downloaded if it is not here yet.

    Args:
        name: Two codes such as `por-eng`, or the path of a folder that `build` wrote.
        split: `train`, `validation` or `test`.

    Raises:
        RunError: If there is no such file, and none can be downloaded.
    """
    folder = pathlib.Path(name)
    if "/" not in name:
        folder = cache() / name
        if not (folder / SUMS).exists():
            fetch(name, folder)
    path = folder / f"{split}.tsv"
    if not path.exists() or not (folder / SUMS).exists():
        raise RunError(f"{path} is missing: run `python training/get_tatoeba.py {folder.name}`")
    return path


def check(file):
    """Raises a RunError unless a `TextFile` that was read is as `build` wrote it."""
    path = pathlib.Path(file.path)
    sums = dict(line.split()[::-1] for line in (path.parent / SUMS).read_text().splitlines())
    if sums.get(path.name) != file.sha256:
        raise RunError(
            f"{path} does not match {path.parent / SUMS}: delete the folder and run "
            f"`python training/get_tatoeba.py {path.parent.name}` again"
        )


def fetch(pair, folder, exports=None):
    """Downloads the exports for a pair of languages, and builds the splits; {split: pairs}.

    Args:
        pair: Two codes such as `por-eng`.
        folder: The folder to write to.
        exports: A folder with downloaded exports; None to download them.
    """
    names = export_names(pair)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be about to do the same
        if exports is None:
            exports = folder / "exports"
            exports.mkdir(exist_ok=True)
            print(f"Downloading {pair} from Tatoeba to {folder}")
            for name in names:
                try:
                    download(f"{EXPORTS}/{name}", exports / pathlib.Path(name).name)
                except (OSError, http.client.HTTPException) as error:
                    if getattr(error, "code", None) == 404:
                        raise RunError(
                            f"Tatoeba has no {name}: expected two of its languages, of which some "
                            f"sentences are linked. Received: {pair}"
                        ) from error
                    reason = getattr(error, "reason", None) or error
                    raise RunError(
                        f"cannot download {EXPORTS}/{name} ({reason}): repeat the command "
                        "to resume, or run `python training/get_tatoeba.py "
                        f"{pair} --folder DIR` where there is a network, and give "
                        f"--data tatoeba:DIR/{pair} here"
                    ) from error
        counts = build([exports / pathlib.Path(name).name for name in names], folder)
    print((folder / "ATTRIBUTION").read_text(), end="")
    return counts


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


def check_exports(folder, names):
    """Raises a RunError if a folder lacks one of these exports."""
    for name in names:
        if not (path := folder / pathlib.Path(name).name).is_file():
            raise RunError(f"{path} is missing: download {EXPORTS}/{name} first")


def download(url, path):
    """Downloads a file that is not here yet, or what is missing of it.

    Until it is whole, `NAME.part` holds what there is, and `NAME.tag` which version it is of.

    Raises:
        OSError, HTTPException: If the server refuses, or has failed `FAILURES` times in a row.
    """
    part, tag = (path.with_name(f"{path.name}.{ending}") for ending in ("part", "tag"))
    failures = 0
    while not path.exists():
        before = part.stat().st_size if part.exists() else 0
        try:
            receive(url, part, tag)
            part.replace(path)
            tag.unlink(missing_ok=True)
        except (OSError, http.client.HTTPException) as error:
            code = getattr(error, "code", None)
            if code == 416:  # it has become shorter, or is whole
                part.unlink(missing_ok=True)
            further = part.exists() and part.stat().st_size > before
            failures = 1 if further else failures + 1
            if failures == FAILURES or (code and 400 <= code < 500 and code not in (408, 416, 429)):
                raise
            time.sleep(PAUSE * failures)


def receive(url, part, tag):
    """Appends what is missing to a file, or begins again if the server has another one now."""
    have = part.stat().st_size if part.exists() and tag.exists() else 0
    more = {"Range": f"bytes={have}-", "If-Range": tag.read_text()} if have else {}
    request = urllib.request.Request(url, headers={"User-Agent": "keras_tfmr", **more})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        begin, total = 0, int(answer.headers["Content-Length"] or 0)
        if answer.status == 206:
            span = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers["Content-Range"] or "")
            begin, total = map(int, span.groups()) if span else (-1, 0)
        if begin not in (0, have):
            tag.unlink()  # so that the next attempt begins again
            raise OSError("the server sent a different part of the file than requested")
        version = answer.headers["ETag"] or answer.headers["Last-Modified"]
        tag.write_text(version) if version else tag.unlink(missing_ok=True)
        with part.open("ab" if begin else "wb", buffering=0) as file:
            while chunk := answer.read(1 << 16):
                with explained(part):  # a full disk is no reason to try again
                    begin += file.write(chunk)
                show(f"{part.stem}: {begin / 1e6:,.1f} of {total / 1e6:,.1f} MB")
    if begin < total:
        raise OSError(f"the connection broke off after {begin:,} of {total:,} bytes")
    show(f"{part.stem}: {begin / 1e6:,.1f} MB", end="\n")


def show(line, end=""):
    """Shows on standard error how far it is; without a terminal, the last line only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end=end, file=sys.stderr, flush=True)
    elif end:
        print(line, file=sys.stderr)


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
    lines = b"".join(cleaned.text for cleaned in map(Cleaner(Rules()), in_memory(pairs)))
    pairs = [tuple(line.split("\t")) for line in dict.fromkeys(lines.decode().split("\n")[:-1])]
    if len(pairs) < 20:
        raise RunError(f"{folder.name}: expected at least 20 pairs to split, found {len(pairs)}")
    splits, sums = split(pairs), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, split_pairs in splits.items():
        content = "".join(f"{source}\t{target}\n" for source, target in split_pairs).encode()
        write_atomically(folder / f"{name}.tsv", content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}.tsv\n")
    names = ", ".join(path.name for path in exports)
    write_atomically(folder / "ATTRIBUTION", ATTRIBUTION.format(names=names))
    write_atomically(folder / SUMS, "".join(sums))
    return {name: len(split_pairs) for name, split_pairs in splits.items()}


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
                match = re.fullmatch(form, line.rstrip("\r\n"))
                if not match:
                    raise RunError(f"{path}, line {number}: expected {what}, found {line[:80]!r}")
                yield match.groups()
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: download it first") from error
    except (EOFError, OSError, UnicodeDecodeError) as error:
        raise RunError(
            f"{path}: not a complete export ({error}): delete it and try again"
        ) from error
