"""A corpus as token ids in memory-mapped files: cleaned, deduplicated, held out, encoded.

Written once, at constant memory, and used at every start of a run. `store.json` is written last; it
records what the files were made from and their checksums, so that a run never learns from a partial
or damaged corpus.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
from typing import NamedTuple

import numpy as np

from keras_tfmr.text.lines import id_type
from training.clean import Cleaner, Rules, summary
from training.cleaned import CleanedCorpus, in_processes
from training.files import RunError, mapped, read_json, record, write_json
from training.labels import Labels
from training.sources import Source, corpora_of, tags_of
from training.text_blocks import TextFile, read_blocks, rows, sha256, stamp

HELD_OUT = 1000  # pairs held out if the settings name no validation set; at most a tenth of all
LEARNED = 200_000  # lines that a vocabulary is learned from
SIDES = ("source", "target")
ARRAYS = tuple(f"{side}.{kind}" for side in SIDES for kind in ("values", "offsets"))
NOTHING_LEFT = "no pair is left to learn from: every pair shares a sentence with held-out pairs"
INDEX, TEXT = "store.json", "pairs.tsv"


class Encoded(NamedTuple):
    """The encoded training pairs of a run, and its validation and test pairs.

    Fields:
        sides: `(values, offsets)` of the ids of source and target, memory maps.
        parts: The number of pairs of each corpus.
        held_out: `{"validation": pairs, "test": pairs}`, lists of (source, target).
        record: Counts and checksums, for config.json.
        files: A `TextFile` for each file that was read.
    """

    sides: list
    parts: list
    held_out: dict
    record: dict
    files: list

    def summaries(self):
        """Lines for people, one for each set of pairs."""
        return [f"{name}: {_told(**about)}" for name, about in self.record.items()]

    def changed_files(self):
        """The files that have changed: (path, old checksum, new checksum)."""
        suspects = (f for f in self.files if stamp(f.path) != (f.bytes, f.modified))
        now = ((file.path, file.sha256, sha256(file.path)) for file in suspects)
        return [change for change in now if change[1] != change[2]]


def identity(tokenizers):
    """Checksums that identify the tokenizers."""
    return [hashlib.sha256(tokenizer.model_bytes).hexdigest() for tokenizer in tokenizers]


def read(folder, tokenizers):
    """The `Encoded` of a folder, or None if it is missing, damaged or of other tokenizers."""
    try:
        index = read_json(folder / INDEX)
    except RunError:
        return None
    records = index["arrays"]
    if index["tokenizers"] != identity(tokenizers):
        return None
    arrays = []
    for path, known in ((folder / name, records[name]) for name in ARRAYS):
        if not path.is_file() or record(path, known["dtype"]) != known:
            return None
        arrays.append(mapped(path, known["dtype"]))
    held_out = {name: [tuple(pair) for pair in rows] for name, rows in index["held_out"].items()}
    files = [TextFile(*file) for file in index["files"]]
    sides = [tuple(arrays[:2]), tuple(arrays[2:])]
    return Encoded(sides, index["parts"], held_out, index["record"], files)


def delete(folder):
    """Deletes the files of an encoded corpus by their names, and the folder if it is empty then."""
    for name in (INDEX, TEXT, *ARRAYS):
        (folder / name).unlink(missing_ok=True)
    if folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def encode(settings, folder, known=None):
    """Reads, cleans and encodes the corpora of a run; learns the tokenizers.

    Args:
        known: `(source, target)` tokenizers to use, or with `extend_vocab` to extend.

    Returns:
        The `Encoded` and its tokenizers.
    """
    delete(folder)
    folder.mkdir(parents=True)
    try:
        tokenizers = _encode(settings, folder, known)
    except BaseException:
        delete(folder)
        raise
    return read(folder, tokenizers), tokenizers


def _encode(settings, folder, known):
    """Writes the files; returns the tokenizers."""
    corpora, files = corpora_of(settings), []
    tags = [corpus.tag for corpus in corpora]
    sets = _given_sets(settings, corpora)
    blocks = (corpus.blocks("train", files) for corpus in corpora)
    cleaned = CleanedCorpus(folder / TEXT, blocks, _rules(settings, corpora), settings.task)
    if not len(cleaned):
        raise RunError(
            f"{corpora[0].name}: no pair is left of {cleaned.lines:,} lines; "
            f"dropped: {summary(cleaned.dropped)}"
        )
    sets = sets or {"validation": _hold_out(cleaned, settings.seed, tags)}
    pairs = [pair for found in sets.values() for pair in found.pairs]
    excluded = [{pair[side] for pair in pairs} for side in (0, 1)]
    if settings.task != "translation":  # labels occur in training and validation
        excluded[1 - text_column(settings)] = set()
    tokenizers = _tokenizers(settings, known, cleaned, excluded, tags, pairs)
    parts, arrays = _write(folder, cleaned, tokenizers, excluded, tags)
    cleaned.path.unlink()
    counts = {"train": (sum(parts), files, cleaned.dropped)}
    counts |= {name: (len(s.pairs), s.files, s.dropped) for name, s in sets.items()}
    index = {
        "arrays": arrays,
        "parts": parts,
        "tokenizers": identity(tokenizers),
        "held_out": {n: sets[n].tagged() if n in sets else [] for n in ("validation", "test")},
        "record": {name: _record(*about) for name, about in counts.items()},
        "files": [*files, *(file for found in sets.values() for file in found.files)],
    }
    write_json(folder / INDEX, index)
    return tokenizers


def text_column(settings):
    """The column of a text task that holds the text; the other has its labels, if any."""
    return int(settings.task in ("language", "masked"))


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs in memory, each once, with their tags and the files they come from."""

    pairs: list
    tags: list
    dropped: dict
    files: tuple = ()

    def tagged(self):
        """The pairs as a model reads them."""
        rows = zip(self.tags, self.pairs, strict=True)
        return [(_tagged(tag, source), target) for tag, (source, target) in rows]


def read_pairs(*paths, most=None, rules=None):
    """The cleaned `Pairs` of one file of `source<TAB>target` lines, or of two aligned files.

    Args:
        most: Of how many pairs to read no more; None for all.
        rules: The `Rules` of cleaning.
    """
    files = []
    found = clean_pairs([(read_blocks(paths, files), "")], files, most=most, rules=rules)
    if not found.pairs:
        raise RunError(
            f"{paths[0]}: no pair is left of {files[0].lines} lines; "
            f"dropped: {summary(found.dropped)}"
        )
    return found


def clean_pairs(corpora, files=(), task="translation", most=None, rules=None):
    """The cleaned `Pairs` of corpora, each blocks of lines and their tag.

    Args:
        corpora: An iterable of (blocks, tag).
        files: A list, to which reading the blocks adds.
        task: What the lines are for.
        most: The most pairs; None for all.
        rules: The `Rules` of cleaning.
    """
    cleaner, dropped, tags, count = Cleaner(rules or Rules(), task), collections.Counter(), {}, 0
    for blocks, tag in corpora:
        for cleaned in map(cleaner, blocks):
            for line in cleaned.text.decode().split("\n")[:-1]:
                tags.setdefault(line, tag)
                count += 1
            dropped.update(cleaned.dropped)
            if most and len(tags) >= most:
                break
    dropped["duplicate"] += count - len(tags)
    pairs = [tuple(line.split("\t")) for line in tags][:most]
    return Pairs(pairs, list(tags.values()), dropped, tuple(files))


def _given_sets(settings, corpora):
    """The validation and test sets that were given, {name: Pairs}."""
    rules = Rules(settings.max_characters)
    if paths := settings.validation:
        tag, files = tags_of(settings.tag).get(paths[0], ""), []
        alone = len(paths) == 1
        blocks = Source(paths[0]).blocks("train", files) if alone else read_blocks(paths, files)
        found = clean_pairs([(blocks, tag)], files, settings.task, rules=rules)
        if not found.pairs:
            raise RunError(f"{paths[0]}: no pair is left; dropped: {summary(found.dropped)}")
        return {"validation": found}
    with_splits, sets = [corpus for corpus in corpora if corpus.has_splits], {}
    for name in ("validation", "test") if with_splits else ():
        files = []
        split = ((corpus.blocks(name, files), corpus.tag) for corpus in with_splits)
        sets[name] = clean_pairs(split, files, settings.task, rules=rules)
    return sets


def _rules(settings, corpora):
    """The `Rules` of cleaning; what is usual is measured on the first lines of each corpus."""
    rules = Rules(settings.max_characters, settings.filters, settings.languages)
    if not rules.filters:
        return rules
    firsts = (next(corpus.blocks("train", []), None) for corpus in corpora)
    return rules.measured_on(itertools.chain.from_iterable(rows(b) for b in firsts if b))


def _hold_out(cleaned, seed, tags):
    """Takes validation pairs out of a cleaned corpus."""
    every = len(cleaned)
    count = min(HELD_OUT, -(-every // 10))
    if count >= every:
        raise RunError(
            f"cannot hold out {count} of {every} pairs for validation: give more pairs, or "
            "--validation"
        )
    places = np.random.default_rng([seed, 1]).choice(every, count, replace=False)
    numbers = np.flatnonzero(cleaned.kept)[np.sort(places)]
    found = list(cleaned.read(numbers))
    cleaned.kept[numbers] = False
    return Pairs([f[:2] for f in found], [tags[part] for *_, part in found], {})


def _tokenizers(settings, known, cleaned, excluded, tags, held_out):
    """The tokenizers of both sides: known, learned from a cleaned corpus, or both."""
    if settings.task == "translation":
        if known and not settings.extend_vocab:
            return known
        pairs = list(_spaced(cleaned, LEARNED // (1 + settings.joint_vocab), excluded, tags))
        columns = [[pair[side] for pair in pairs] for side in (0, 1)]
        columns = [columns[0] + columns[1]] if settings.joint_vocab else columns
        learned = [_learn(lines, settings.vocab_size) for lines in columns]
        learned = (learned[0], learned[-1])
        return _extended(known, learned) if known else learned
    text = text_column(settings)
    if known:
        subwords = known[0]
    else:
        pairs = _spaced(cleaned, LEARNED, excluded, tags)
        subwords = _learn([pair[text] for pair in pairs], settings.vocab_size)
    if text:
        return (subwords, subwords)
    # With the held-out texts, which may have a label that no training text has.
    every = itertools.chain(cleaned.read(np.flatnonzero(cleaned.kept)), held_out)
    return (subwords, Labels.learn(row[1] for row in every))


def _spaced(cleaned, most, excluded, tags):
    """At most `most` evenly spaced pairs that are not held out, with their tags."""
    numbers = np.flatnonzero(cleaned.kept)
    for source, target, part in cleaned.read(numbers[:: -(-len(numbers) // most)]):
        if source not in excluded[0] and target not in excluded[1]:
            yield _tagged(tags[part], source), target


def _learn(lines, size):
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    if not lines:
        raise RunError(NOTHING_LEFT)
    try:
        return SubwordTokenizer.learn(lines, size)
    except ValueError as error:
        raise RunError(str(error)) from error


def _extended(known, learned):
    """The known tokenizers of both sides with the subwords of the learned ones."""
    try:
        source = known[0].extended(learned[0])
        return (source, source if known[0] is known[1] else known[1].extended(learned[1]))
    except ValueError as error:
        raise RunError(f"--extend_vocab: {error}") from error


class Encoder:
    """Encodes the pairs of a `Piece` that are kept, in a process without Keras and TensorFlow."""

    def __init__(self, path, tokenizers, excluded, tags):
        self._path, self._excluded, self._tags = path, excluded, tags
        self._encoders = [getattr(each, "lines", each) for each in tokenizers]

    def __call__(self, job):
        piece, kept = job
        with self._path.open("rb") as file:
            file.seek(piece.offset)
            lines = file.read(piece.size).decode().split("\n")
        pairs = [lines[i].split("\t") for i in np.flatnonzero(kept)]
        left_out = self._excluded
        found = [pair for pair in pairs if not any(map(set.__contains__, left_out, pair))]
        tag = self._tags[piece.part]
        columns = [_tagged(tag, source) for source, _ in found], [target for _, target in found]
        sides = []
        for encoder, column in zip(self._encoders, columns, strict=True):
            values, offsets = encoder.encode_lines(column)
            sides.append((values, np.diff(offsets)))
        return len(found), len(pairs) - len(found), sides


def _write(folder, cleaned, tokenizers, excluded, tags):
    """Encodes the kept pairs into files: the number of pairs in each part, records of the files."""
    sizes, ends = collections.Counter(), [0, 0]
    jobs = ((p, np.array(cleaned.kept[p.first : p.first + p.pairs])) for p in cleaned.pieces)
    results = in_processes(Encoder(cleaned.path, tokenizers, excluded, tags), jobs)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / name).open("wb")) for name in ARRAYS]
        for offsets in files[1::2]:
            offsets.write(np.zeros(1, np.int64).tobytes())
        for piece, (pairs, shared, sides) in zip(cleaned.pieces, results, strict=True):
            sizes[piece.part] += pairs
            cleaned.dropped["shared"] += shared
            for i, (values, lengths) in enumerate(sides):
                files[2 * i].write(values.tobytes())
                files[2 * i + 1].write((ends[i] + np.cumsum(lengths)).tobytes())
                ends[i] += len(values)
    dtypes = [dtype for t in tokenizers for dtype in (id_type(t.vocab_size), np.int64)]
    records = {name: record(folder / name, d) for name, d in zip(ARRAYS, dtypes, strict=True)}
    if not sizes.total():
        raise RunError(NOTHING_LEFT)
    return [sizes[number] for number in range(1 + max(p.part for p in cleaned.pieces))], records


def _tagged(tag, source):
    return f"{tag} {source}" if tag else source


def _told(pairs, files, dropped):
    """A line about a corpus: its size, its files, the dropped pairs."""
    names = ", ".join(f"{file['path']} (sha256 {file['sha256'][:12]})" for file in files[:3])
    more = f" and {len(files) - 3} more files" if len(files) > 3 else ""
    left_out = f"; dropped: {summary(dropped)}" if dropped else ""
    return f"{pairs:,} pairs{f' from {names}' if names else ''}{more}{left_out}"


def _record(pairs, files, dropped):
    known = [{"path": f.path, "sha256": f.sha256, "lines": f.lines} for f in files]
    return {"pairs": pairs, "dropped": {k: n for k, n in dropped.items() if n}, "files": known}
