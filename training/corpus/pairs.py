"""Corpora in memory: validation and test sets, and other small ones."""

import collections
import dataclasses

from training.corpus import files
from training.corpus.clean import Cleaner, Rules, summary
from training.corpus.files import CorpusError
from training.corpus.pile import in_memory


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Sentence pairs: `targets[i]` is the translation of `sources[i]`.

    Both are in Unicode's composed form (NFC), stripped and not empty; no pair occurs twice. `files`
    are the files that they come from, and `dropped` counts the pairs that were left out.
    """

    sources: list
    targets: list
    dropped: dict = dataclasses.field(default_factory=dict)
    files: tuple = ()

    def __len__(self):
        return len(self.sources)

    def pairs(self):
        """Iterates over (source, target)."""
        return zip(self.sources, self.targets, strict=True)

    def summary(self):
        """A line about the corpus, for people."""
        return told(len(self), self.files, self.dropped)

    def record(self):
        """Counts and checksums, which JSON can hold."""
        return record(len(self), self.files, self.dropped)


def told(pairs, read, dropped):
    """A line about a corpus: its size, its files, the dropped pairs."""
    names = ", ".join(f"{file.path} (sha256 {file.sha256[:12]})" for file in read[:3])
    more = f" and {len(read) - 3} more files" if len(read) > 3 else ""
    return f"{pairs:,} pairs from {names or 'memory'}{more}; dropped: {summary(dropped)}"


def record(pairs, read, dropped):
    """The same for config.json."""
    known = [{"path": f.path, "sha256": f.sha256, "lines": f.lines} for f in read]
    return {"pairs": pairs, "dropped": {k: n for k, n in dropped.items() if n}, "files": known}


def read_pairs(source_path, target_path=None, *, max_characters=1000):
    """Reads a corpus from one file of `source<TAB>target` lines or from two line-aligned files.

    Args:
        source_path: The file of pairs, or that of the sources. Files that end in `.gz`, `.bz2` or
            `.zst` are decompressed.
        target_path: The file of the targets, if it is separate.
        max_characters: Pairs with a longer side are dropped.

    Returns:
        A `Corpus`; its `dropped` counts the pairs that were left out.

    Raises:
        CorpusError: If a file is empty, is not UTF-8, does not have two columns, or differs from
            its partner in length; it names the file and the line.
    """
    paths, read = [path for path in (source_path, target_path) if path is not None], []
    corpus = clean_blocks(files.blocks(paths, read), Rules(max_characters))
    if not len(corpus):
        raise CorpusError(
            f"{paths[0]}: no pair is left of {read[0].lines} lines; "
            f"dropped: {summary(corpus.dropped)}"
        )
    return dataclasses.replace(corpus, files=tuple(read))


def clean(pairs, *, max_characters=1000):
    """Makes a `Corpus` of (source, target) pairs, composed and stripped, each kept once."""
    return clean_blocks(in_memory(pairs), Rules(max_characters))


def clean_blocks(blocks, rules):
    """Makes a `Corpus` of `files.Block`s."""
    cleaner, dropped, pairs, count = Cleaner(rules), collections.Counter(), {}, 0
    for cleaned in map(cleaner, blocks):
        lines = cleaned.text.decode().split("\n")[:-1]
        pairs |= dict.fromkeys(lines)
        dropped.update(cleaned.dropped)
        count += len(lines)
    dropped["duplicate"] += count - len(pairs)
    columns = [line.split("\t") for line in pairs]
    return Corpus([c[0] for c in columns], [c[1] for c in columns], dropped)
