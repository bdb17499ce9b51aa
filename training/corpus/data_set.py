"""Data sets that are downloaded once: folders of three splits with checksums and their terms."""

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
from typing import NamedTuple

from training.command.disk import RunError, explained, write_atomically

SUMS = "SHA256SUMS"  # written last
FAILURES, PAUSE, TIMEOUT = 3, 1.0, 20.0  # failures in a row, seconds after each, seconds of silence
SPLITS = ("train", "validation", "test")


class DataSet(NamedTuple):
    """What is downloaded for a pair of languages, and the splits that are made of it.

    Fields:
        name: What stands before the colon in `--data tatoeba:por-eng`.
        files: `files(pair)` is {name: URL}; it raises a RunError if there is no such pair.
        splits: `splits(paths)` is {split: list of (source, target)} of these files, in their order.
        terms: Where the pairs come from, and their licence, in a few lines.
    """

    name: str
    files: object
    splits: object
    terms: str

    def cache(self):
        """The folder of all pairs: beside Keras's own data sets, which KERAS_HOME moves."""
        home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
        return pathlib.Path(home, "datasets", self.name)

    def split_path(self, pair, split):
        """The file of a split of a pair of languages, which is downloaded if it is not here yet.

        Args:
            pair: Two codes such as `por-eng`, or the path of a folder that `fetch` wrote.
            split: `train`, `validation` or `test`.

        Raises:
            RunError: If there is no such file, and none can be downloaded.
        """
        folder = pathlib.Path(pair)
        if "/" not in pair:
            folder = self.cache() / pair
            if not (folder / SUMS).exists():
                self.fetch(pair, folder)
        path = folder / f"{split}.tsv"
        if not path.exists() or not (folder / SUMS).exists():
            raise RunError(f"{path} is missing: run `{self.command(folder.name)}`")
        return path

    def command(self, pair):
        """The command that downloads a pair."""
        return f"python training/get_data.py {self.name}:{pair}"

    def check(self, file):
        """Raises a RunError unless a `TextFile` that was read is as `fetch` wrote it."""
        path = pathlib.Path(file.path)
        sums = dict(line.split()[::-1] for line in (path.parent / SUMS).read_text().splitlines())
        if sums.get(path.name) != file.sha256:
            raise RunError(
                f"{path} does not match {path.parent / SUMS}: delete the folder and run "
                f"`{self.command(path.parent.name)}` again"
            )

    def fetch(self, pair, folder, downloads=None):
        """Downloads the files of a pair of languages, and writes the splits; {split: pairs}.

        Args:
            pair: Two codes such as `por-eng`.
            folder: The folder to write to; its `SHA256SUMS` is the same for the same files.
            downloads: A folder with downloaded files; None to download them.
        """
        urls = self.files(pair)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be about to do the same
            if downloads is None:
                downloads = folder / "downloads"
                downloads.mkdir(exist_ok=True)
                print(f"Downloading {self.name}:{pair} to {folder}")
                for name, url in urls.items():
                    self._download(pair, url, downloads / name)
            splits = self.splits([downloads / name for name in urls])
            self._write(folder, splits, ", ".join(urls))
        print((folder / "ATTRIBUTION").read_text(), end="")
        return {name: len(pairs) for name, pairs in splits.items()}

    def check_downloads(self, folder, pair):
        """Raises a RunError if a folder lacks one of the files of a pair."""
        for name, url in self.files(pair).items():
            if not (folder / name).is_file():
                raise RunError(f"{folder / name} is missing: download {url} first")

    def _download(self, pair, url, path):
        try:
            download(url, path)
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "code", None) == 404:
                raise RunError(
                    f"{self.name} has no {path.name}: expected a pair of languages that are "
                    f"linked there. Received: {pair}"
                ) from error
            reason = getattr(error, "reason", None) or error
            raise RunError(
                f"cannot download {url} ({reason}): repeat the command to resume, or run "
                f"`{self.command(pair)} --folder DIR` where there is a network, and give "
                f"--data {self.name}:DIR/{pair} here"
            ) from error

    def _write(self, folder, splits, names):
        sums = []
        for name, pairs in splits.items():
            content = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
            write_atomically(folder / f"{name}.tsv", content)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}.tsv\n")
        write_atomically(folder / "ATTRIBUTION", f"{self.terms}Made from {names}.\n")
        write_atomically(folder / SUMS, "".join(sums))


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
