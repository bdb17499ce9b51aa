"""Training data of a run: encoded pairs, tokenizers and batches, made from its settings."""

import contextlib
import itertools
from typing import NamedTuple

import numpy as np

from keras_tfmr.text.labels import Labels
from keras_tfmr.text.spans import SLOTS
from training.command.disk import RunError, changes_in_words, differences
from training.corpus import store
from training.corpus.batches import Batches, CorpusPart, compiles_by_shape
from training.corpus.filter import Cleaner, Rules, summary
from training.corpus.held_out import given_sets, hold_out
from training.corpus.protect import PairProtection
from training.corpus.read import rows, text_column
from training.corpus.sources import corpora_of, rates
from training.corpus.unique import UniquePairs
from training.tasks import TASKS

LEARNED = 200_000  # lines that a vocabulary is learned from
PHRASEBOOK = (
    "The built-in phrasebook has everyday sentences, most of them made by a grammar. For other "
    "text, give --data."
)
EVERYDAY = (
    "Look at the `everyday` score first: no run learns from its sentences, which were written by "
    "hand; those of `validation` and `test` were made by the grammar."
)


class Data(NamedTuple):
    """Everything that a run learns from and is evaluated on.

    Fields:
        task: The task, such as `tasks.TranslationTask`.
        batches: The `data.Batches`.
        validation: List of `(source, reference)`.
        test: The same for a test set; empty if there is none.
        steps: Number of updates of the run, 0 if minutes have to be measured.
        record: Counts and checksums, for config.json.
        summary: Lines for people.
    """

    task: object
    batches: Batches
    validation: list
    test: list
    steps: int
    record: dict
    summary: str


def prepare(settings, folder, before, known=None, replicas=1):
    """Reads and encodes the corpora, unless the folder of a resumed run has them.

    Args:
        before: The config.json of the run that is resumed, or None.
        known: `(source, target)` tokenizers to use.
        replicas: Number of devices over all hosts, which share each batch.

    Raises:
        RunError: If the corpora cannot be read, or are not those that the run began with.
    """
    tokenizers = folder.tokenizers() if before else None
    encoded = tokenizers and store.read(folder.encoded, tokenizers)
    recorded = (before or {}).get("corpus", {})
    # It may be that of a run that was to begin.
    if not encoded or differences(recorded, encoded.record):
        encoded, tokenizers = encode(settings, folder.encoded, tokenizers or known)
    changes = [f"{p} (sha256 {a[:12]}, now {b[:12]})" for p, a, b in encoded.changed_files()]
    if before and (others := differences(recorded, encoded.record)):
        changes.append(changes_in_words(others))
    if changes:
        raise RunError(
            f"The corpus is not the one that the run in {folder.path} began with: "
            f"{'; '.join(changes)}. Choose another --output, or delete the folder"
        )
    task = TASKS[settings.task](settings, tokenizers)
    batches = make_batches(settings, task, encoded, replicas)
    steps, sets = settings.steps or 0, encoded.held_out
    if settings.epochs and not steps:
        steps = -(-settings.epochs * batches.batches_in(0) // settings.gradient_accumulation_steps)
    lines = [PHRASEBOOK] if settings.phrasebook else []
    lines += [EVERYDAY] if settings.phrasebook and settings.task == "translation" else []
    lines += [*encoded.summaries(), *_vocabulary(*tokenizers), f"batches: {batches.summary()}"]
    validation, test = sets["validation"], sets["test"]
    return Data(task, batches, validation, test, steps, encoded.record, "\n".join(lines))


def encode(settings, folder, known=None):
    """Reads, cleans and encodes the corpora of a run; learns the tokenizers.

    Args:
        known: `(source, target)` tokenizers to use.

    Returns:
        The `Encoded` and its tokenizers.
    """
    store.delete(folder)
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(store.delete, folder)
        corpora, files = corpora_of(settings), []
        sets = given_sets(settings, corpora)
        rules, blocks = _measured(settings, [corpus.blocks("train", files) for corpus in corpora])
        cleaner, tags = Cleaner(rules, settings.task), [corpus.tag for corpus in corpora]
        protect = _protection(settings, tags)
        unique = UniquePairs(folder / store.TEXT, blocks, cleaner, tags, protect)
        if not len(unique):
            raise RunError(
                f"{corpora[0].name}: no pair is left of {unique.lines:,} lines; "
                f"dropped: {summary(unique.dropped)}"
            )
        sets = sets or {"validation": hold_out(unique, settings.seed)}
        held_out = [pair for pairs in sets.values() for pair in pairs.pairs]
        for side in (0, 1):
            # Labels occur in training and validation.
            if settings.task == "translation" or side == text_column(settings.task):
                unique.excluded[side].update(pair[side] for pair in held_out)
        tokenizers = _tokenizers(settings, known, unique, held_out)
        encoded = store.write(folder, unique, tokenizers, sets, files)
        unique.path.unlink()
        unfinished.pop_all()
    return encoded, tokenizers


def _measured(settings, corpora):
    """The `Rules` of cleaning, and the blocks of the corpora, of whose first ones they are made."""
    rules = Rules(settings.max_characters, settings.filters, settings.languages)
    if not rules.filters:
        return rules, corpora
    firsts = [list(itertools.islice(blocks, 1)) for blocks in corpora]
    pairs = itertools.chain.from_iterable(rows(block) for first in firsts for block in first)
    rules = rules.measured_on(pairs)
    return rules, [itertools.chain(*both) for both in zip(firsts, corpora, strict=True)]


def _protection(settings, tags):
    """The `PairProtection` of the pairs, or None."""
    if not settings.protect:
        return None
    protection = PairProtection(settings.protect, settings.seed)
    if wrong := next(filter(protection.finds, tags), None):
        raise RunError(
            f"--protect would make a span of --tag {wrong}: write it in another way, such as "
            f">>{wrong.strip('<>')}<<, or give other names to --protect"
        )
    return protection


def _tokenizers(settings, known, unique, held_out):
    """The tokenizers of both sides: known, or learned from the `UniquePairs`."""
    if settings.task != "translation":
        return _of_texts(settings, known, unique, held_out)
    if known:
        return known
    columns = list(zip(*unique.spaced(LEARNED // (1 + settings.joint_vocab)), strict=True))
    columns = [columns[0] + columns[1]] if settings.joint_vocab else columns
    symbols = SLOTS if settings.protect else ()
    learned = [_learn(lines, settings.vocab_size, symbols) for lines in columns]
    return learned[0], learned[-1]


def _of_texts(settings, known, unique, held_out):
    """The subwords of the texts, and their labels or the subwords again."""
    column = text_column(settings.task)
    texts = () if known else [pair[column] for pair in unique.spaced(LEARNED)]
    subwords = known[0] if known else _learn(texts, settings.vocab_size)
    if column:
        return subwords, subwords
    # With the held-out texts, which may have a label that no training text has.
    every = itertools.chain(unique.read(np.flatnonzero(unique.kept)), held_out)
    return subwords, Labels.learn(row[1] for row in every)


def _learn(lines, size, symbols=()):
    from keras_tfmr.text.tokenizer import SubwordTokenizer

    try:
        return SubwordTokenizer.learn(lines, size, symbols=symbols)
    except ValueError as error:
        raise RunError(str(error)) from error


def _vocabulary(source, target):
    """Lines for people about the tokenizers."""
    if labels := getattr(target, "names", None):
        names = ", ".join(labels[:12])
        return [f"vocabulary: {source.vocab_size:,} subwords", f"labels: {len(labels)}, {names}"]
    sizes = dict.fromkeys(f"{side.vocab_size:,}" for side in (source, target))
    return [f"vocabulary: {' and '.join(sizes)} subwords"]


def make_batches(settings, task, encoded, replicas=1):
    """The `Batches` of an `Encoded`."""
    sizes = encoded.parts
    ends = itertools.accumulate(sizes)
    shares = rates(corpora_of(settings), sizes)
    parts = [
        CorpusPart(e - n, e, rate) for e, n, rate in zip(ends, sizes, shares, strict=True) if n
    ]
    return Batches(
        encoded.sides,
        task,
        tokens_per_batch=settings.tokens_per_batch,
        seed=settings.seed,
        rows_multiple=replicas,
        parts=parts,
        max_tokens=settings.max_tokens,
        fixed_shapes=compiles_by_shape(),
    )
