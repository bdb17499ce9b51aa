"""Training data of a run, from the settings to batches: one function per stage, in order.

`prepare` calls them all. `encode` reads the corpora and writes their ids, once in a run; each start
of the run makes its batches from these.
"""

import collections
import dataclasses
import functools
import itertools
import math

from keras_tfmr.text.labels import Labels
from keras_tfmr.text.spans import SLOTS
from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.command.disk import RunError, changes_in_words, differences
from training.corpus import store
from training.corpus.batches import Batches, CorpusPart, compiles_by_shape
from training.corpus.filter import cleaned, typical_ratio
from training.corpus.pairs import UniquePairs, check_any, given_sets, hold_out
from training.corpus.slots import SlotInserter
from training.corpus.sources import corpora_of, rates, tagged
from training.tasks import TASKS

LEARNED = 200_000  # lines that a vocabulary is learned from
MEASURED = 20_000  # lines of each corpus that the typical length ratio is measured on
PHRASEBOOK = (
    "The built-in phrasebook has everyday sentences, most of them made by a grammar. For other "
    "text, give --data."
)
EVERYDAY = (
    "Look at the `everyday` score first: no run learns from its sentences, which were written by "
    "hand; those of `validation` and `test` were made by the grammar."
)


@dataclasses.dataclass
class Data:
    """Everything that a run learns from and is evaluated on.

    Fields:
        task: The task, such as `tasks.TranslationTask`.
        batches: The `Batches`.
        encoded: The `Encoded`, whose `held_out` has the evaluation sets.
        steps: Number of updates of the run, 0 if minutes have to be measured.
        summary: Lines for people.
    """

    task: object
    batches: Batches
    encoded: store.Encoded
    steps: int
    summary: str


def prepare(settings, folder, before, known=None, replicas=1):
    """The `Data` of a run. It is read and encoded, unless the folder of a resumed run has it.

    Args:
        settings: The settings.
        folder: The `RunFolder`.
        before: The config.json of the run that is resumed, or None.
        known: `(source, target)` tokenizers to use.
        replicas: Number of devices over all hosts, which share each batch.

    Raises:
        RunError: If the corpora cannot be read, or are not those that the run began with.
    """
    encoded, tokenizers = read_or_encode(settings, folder, before, known)
    if before:
        check_unchanged(encoded, before, folder)
    task = TASKS[settings.task](settings, tokenizers)
    batches = make_batches(settings, task, encoded, replicas)
    said = summary(settings, encoded, tokenizers, batches)
    return Data(task, batches, encoded, steps_of(settings, batches), said)


def steps_of(settings, batches):
    """Number of updates of a run, 0 if minutes have to be measured."""
    if settings.epochs and not settings.steps:
        count = settings.epochs * batches.batches_in(0)
        return math.ceil(count / settings.gradient_accumulation_steps)
    return settings.steps or 0


def read_or_encode(settings, folder, before, known):
    """The `Encoded` of a run and its tokenizers."""
    if before and (tokenizers := folder.tokenizers()):
        known = tokenizers
        encoded = store.read(folder.encoded, tokenizers)
        # What is in the folder may be of a run that was to begin.
        if encoded and encoded.record == before["corpus"]:
            return encoded, tokenizers
    return encode(settings, folder.encoded, known)


def check_unchanged(encoded, before, folder):
    """Raises a RunError if the corpora are not those that a run began with."""
    changes = encoded.changed_files()
    if others := differences(before["corpus"], encoded.record):
        changes.append(changes_in_words(others))
    if changes:
        raise RunError(
            f"The corpus is not the one that the run in {folder.path} began with: "
            f"{'; '.join(changes)}. Choose another --output, or delete the folder"
        )


def encode(settings, folder, known=None):
    """Reads and encodes the corpora of a run into a folder, which is deleted if that fails.

    Args:
        settings: The settings.
        folder: Where to write, a `pathlib.Path`.
        known: `(source, target)` tokenizers to use.

    Returns:
        The `Encoded` and its tokenizers.
    """
    store.delete(folder)
    folder.mkdir(parents=True)
    try:
        corpora = corpora_of(settings)
        tags = [corpus.tag for corpus in corpora]
        slots = slot_inserter(settings, tags)
        files = [entry for corpus in corpora for entry in corpus.checksums()]
        ratio, counts = ratio_of(settings, corpora), collections.Counter()
        rows = [
            cleaned(corpus.rows(settings), settings, counts, settings.filters, ratio)
            for corpus in corpora
        ]
        unique = UniquePairs(folder / store.TEXT, rows, counts)  # until the pairs are encoded
        check_any(unique, corpora, counts)
        sets = evaluation_sets(settings, corpora, unique, tags)
        # Each call reads the file once: vocabulary and labels are known before the first id.
        held_out = sentences_of(settings.task, sets)
        learned = functools.partial(as_learned, unique, held_out, tags, slots, counts)
        tokenizers = known or learn(settings, learned, len(unique))
        if settings.task == "classify":
            tokenizers = tokenizers[0], labels_of(learned(), sets)
        encoded = store.write(folder, learned(), len(corpora), tokenizers, sets, files, counts)
        unique.path.unlink()
        if changes := encoded.changed_files():
            raise RunError(f"The corpus changed while it was read: {'; '.join(changes)}")
        return encoded, tokenizers
    except BaseException:
        store.delete(folder)
        raise


def slot_inserter(settings, tags):
    """The `SlotInserter` of the run, or None if it protects nothing."""
    if not settings.protect:
        return None
    slots = SlotInserter(settings.protect, settings.seed)
    for tag in tags:
        if slots.finds(tag):
            raise RunError(
                f"--protect would make a span of --tag {tag}: write it in another way, such as "
                f">>{tag.strip('<>')}<<, or give other names to --protect"
            )
    return slots


def ratio_of(settings, corpora):
    """The typical length ratio, if a filter needs it: that of each corpus's first lines."""
    if "length_ratio" not in settings.filters:
        return 0.0
    firsts = (itertools.islice(corpus.rows(settings), MEASURED) for corpus in corpora)
    return typical_ratio(itertools.chain.from_iterable(firsts))


def evaluation_sets(settings, corpora, unique, tags):
    """The evaluation sets, {name: `Pairs`}: those that are given, or taken out of the pairs."""
    sets = given_sets(settings, corpora)
    if "validation" not in sets:
        sets["validation"] = hold_out(unique, tags, settings.seed)
    return sets


def sentences_of(task, sets):
    """The sources and the targets of evaluation sets that no pair to learn from may have."""
    pairs = [pair for held_out in sets.values() for pair in held_out.pairs]
    sources = {source for source, _ in pairs} if task != "language" else ()  # all the same
    targets = {target for _, target in pairs} if task != "classify" else ()  # labels
    return sources, targets


def as_learned(unique, held_out, tags, slots, counts, every=1):
    """Yields (number of its corpus, source, target) as a model learns it: with slots and tag.

    Of the `UniquePairs`, it reads every so many; those that share a sentence with `held_out`,
    `(sources, targets)`, are dropped, and counted.
    """
    (sources, targets), left = held_out, 0
    counts["shared"] = 0
    for corpus, source, target in itertools.islice(unique.read(), 0, None, every):
        if source in sources or target in targets:
            counts["shared"] += 1
            continue
        left += 1
        if slots:
            source, target = slots(source, target)
        yield corpus, tagged(tags[corpus], source), target
    if not left:
        raise RunError(
            "no pair is left to learn from: every pair shares a sentence with held-out pairs"
        )


def learn(settings, learned, count):
    """Tokenizers of source and target, which may be the same.

    They are learned from evenly spaced pairs of the `count` that `learned()` reads.
    """
    joint = settings.task == "translation" and settings.joint_vocab
    most = LEARNED // 2 if joint else LEARNED
    _, sources, targets = zip(*learned(every=math.ceil(count / most)), strict=True)
    if settings.task == "classify":
        columns = [sources]
    elif settings.task == "language":
        columns = [targets]
    else:
        columns = [sources + targets] if joint else [sources, targets]
    symbols = SLOTS if settings.protect else ()
    try:
        tokenizers = [
            SubwordTokenizer.learn(lines, settings.vocab_size, symbols=symbols) for lines in columns
        ]
    except ValueError as error:
        raise RunError(str(error)) from error
    return tokenizers[0], tokenizers[-1]


def labels_of(pairs, sets):
    """The `Labels` of all texts, also those that only held-out texts have."""
    held_out = (label for held_out in sets.values() for _, label in held_out.pairs)
    return Labels.learn(itertools.chain((label for *_, label in pairs), held_out))


def make_batches(settings, task, encoded, replicas=1):
    """The `Batches` of an `Encoded`."""
    parts, begin = [], 0
    shares = rates(corpora_of(settings), encoded.parts)
    for size, rate in zip(encoded.parts, shares, strict=True):
        if size:
            parts.append(CorpusPart(begin, begin + size, rate))
        begin += size
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


def summary(settings, encoded, tokenizers, batches):
    """Lines for people about the data of a run."""
    lines = []
    if settings.phrasebook:
        lines.append(PHRASEBOOK)
        if settings.task == "translation":
            lines.append(EVERYDAY)
    lines += encoded.summaries()
    source, target = tokenizers
    sizes = f"{source.vocab_size:,}"
    if settings.task == "translation" and target.vocab_size != source.vocab_size:
        sizes += f" and {target.vocab_size:,}"
    lines.append(f"vocabulary: {sizes} subwords")
    if settings.task == "classify":
        lines.append(f"labels: {len(target.names)}, {', '.join(target.names[:12])}")
    lines.append(f"batches: {batches.summary()}")
    return "\n".join(lines)
