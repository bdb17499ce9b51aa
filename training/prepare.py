"""What a run learns from: pairs, tokenizers and batches, made from its settings."""

import dataclasses
import hashlib
import itertools
from typing import NamedTuple

from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus import sources, store
from training.corpus.batches import Batches, Part
from training.corpus.clean import Rules
from training.corpus.encode import tagged
from training.corpus.files import CorpusError, rows
from training.corpus.pairs import clean_blocks, read_pairs, record, told
from training.corpus.pile import Pile
from training.corpus.sampled_subwords import SampledBatches, SampledSubwords
from training.run.files import RunError

HELD_OUT = 1000  # pairs held out if the settings name no validation set; at most a tenth of all
LONGEST = 256  # tokens on a side; longer pairs are dropped
LEARNED = 200_000  # lines that a vocabulary is learned from


@dataclasses.dataclass(frozen=True)
class Data:
    """Everything that a run learns from and is evaluated on.

    Fields:
        batches: The `Batches` or `SampledBatches` to train on.
        validation: List of `(source, reference)`.
        test: The same for a test set; empty if there is none.
        tokenizers: `(source, target)`, the same one twice for a joint vocabulary.
        description: Counts and checksums, for config.json.
        summary: Lines for people.
    """

    batches: Batches
    validation: list
    test: list
    tokenizers: tuple
    description: dict
    summary: str


class HeldOut(NamedTuple):
    """A validation or test set: its pairs, and the tag of each."""

    pairs: list
    tags: list
    record: dict
    summary: str
    files: tuple

    def tagged(self):
        """The pairs as the model reads them."""
        return [
            (tagged(tag, source), target)
            for tag, (source, target) in zip(self.tags, self.pairs, strict=True)
        ]


class Pairs:
    """How a corpus is read: as sentence pairs. Another task has its own subclass.

    Args:
        settings: A `TrainingConfig`.
        known: `(source, target)` tokenizers to use, or to extend.
    """

    def __init__(self, settings, known=None):
        self.settings, self.known = settings, known

    def corpora(self):
        """What the settings name, as a list of `sources.Source` or the phrasebook."""
        if self.settings.phrasebook:
            return [sources.Phrasebook(self.settings.seed)]
        if self.settings.source:
            return [sources.Source(self.settings.source, aligned=self.settings.target)]
        settings = self.settings
        return sources.parse(settings.data, settings.tag, also=settings.validation)

    def given_validation(self):
        """The `pairs.Corpus` that `--validation` names."""
        return read_pairs(*self.settings.validation)

    def excluded(self, pairs):
        """The sets of sources and of targets of the held-out pairs, which must not be learned."""
        return [{pair[side] for pair in pairs} for side in (0, 1)]

    def tokenizers(self, pile, excluded, tags):
        """The tokenizers of both sides: known, learned from a pile, or both."""
        if self.known and not self.settings.extend_vocab:
            return self.known
        learned = learn_tokenizers(self.settings, pile, excluded, tags)
        return extended(self.known, learned) if self.known else learned

    def vocabulary(self, tokenizers):
        """A line about them."""
        sizes = dict.fromkeys(f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers)
        return f"vocabulary: {' and '.join(sizes)} subwords"


def prepare(settings, claim, reading=None):
    """Reads the pairs, learns the tokenizers, and makes the batches.

    Writes only the encoded pairs into the run folder, where the next start finds them. The other
    files follow once all settings have been checked.

    Args:
        settings: A `TrainingConfig`.
        claim: The `Claim` of the run folder. If a run is resumed in it, the tokenizers are loaded.
        reading: How the corpus is read; as `Pairs` if left out.

    Raises:
        RunError: If the pairs cannot be read or cannot be learned from, or are not those that
            the run began with.
    """
    reading = reading or Pairs(settings)
    try:
        # Not those of a start that failed, which may be in the folder too.
        tokenizers = claim.folder.tokenizers() if claim.resumes else None
        found = kept_store(settings, claim, tokenizers)
        if found is None and not claim.writes:
            raise RunError(
                f"This worker finds no complete encoded corpus in {claim.folder.encoded}, where "
                "the chief wrote it: all workers must mount the same file system there"
            )
        if found is None:
            found, tokenizers = make_store(settings, reading, claim, tokenizers)
        batches = make_batches(settings, reading, found, tokenizers, claim.scratch)
    except (CorpusError, OSError) as error:
        raise RunError(str(error)) from error
    return Data(
        batches=batches,
        validation=found.held_out["validation"],
        test=found.held_out["test"],
        tokenizers=tokenizers,
        description=found.record,
        summary=summary(settings, reading, found, tokenizers, batches),
    )


def kept_store(settings, claim, tokenizers):
    """The store of a resumed run, or None if its corpus has to be read."""
    found = tokenizers and store.read(claim.folder.encoded, identity(tokenizers))
    if not found:
        return None
    if changed := claim.writes and found.changed_files():
        if not settings.overwrite:
            files = "; ".join(f"{path} (sha256 {a[:12]}, now {b[:12]})" for path, a, b in changed)
            raise RunError(
                f"The corpus is not the one that the run in {claim.folder.path} began with: "
                f"{files}. Choose another --run, or give --overwrite"
            )
        claim.clear()
        return None
    claim.keep_to(found.record, overwrite=settings.overwrite)
    return found if claim.resumes else None


def make_store(settings, reading, claim, tokenizers):
    """Reads, cleans and encodes the corpora; learns the tokenizers unless a resumed run has them.

    Returns:
        The `Store` and the tokenizers.
    """
    tokenizers = tokenizers if claim.resumes else None
    folder = claim.folder.encoded
    store.delete(folder)
    folder.mkdir(parents=True)
    try:
        found, used = encode(settings, reading, folder, tokenizers)
    except BaseException:
        store.delete(folder)
        raise
    resumed = claim.resumes
    claim.keep_to(found.record, overwrite=settings.overwrite)
    if resumed and not claim.resumes:  # the run had another corpus and has been deleted
        return make_store(settings, reading, claim, None)
    return found, used


def encode(settings, reading, folder, tokenizers):
    """As `make_store`, whatever is in the folder."""
    corpora, files = reading.corpora(), []
    sets = given_sets(settings, reading, corpora)
    rules = measured_rules(settings, corpora)
    pile = Pile(folder, (corpus.blocks("train", files) for corpus in corpora), rules)
    pile.check(corpora[0].name)
    tags = [corpus.tag for corpus in corpora]
    sets = sets or {"validation": hold_out(pile, settings.seed, tags)}
    excluded = reading.excluded([pair for found in sets.values() for pair in found.pairs])
    tokenizers = tokenizers or reading.tokenizers(pile, excluded, tags)
    parts, arrays = store.write(folder, pile, tokenizers, excluded, tags)
    pile.delete()
    return store.finish(
        folder,
        {
            "arrays": arrays,
            "parts": parts,
            "tokenizers": identity(tokenizers),
            "record": {
                "train": record(sum(parts), files, pile.dropped),
                **{name: held_out.record for name, held_out in sets.items()},
            },
            "summaries": [
                f"train: {told(sum(parts), files, pile.dropped)}",
                *(f"{name}: {held_out.summary}" for name, held_out in sets.items()),
            ],
            "files": [*files, *(file for held_out in sets.values() for file in held_out.files)],
        },
        {name: sets[name].tagged() if name in sets else [] for name in ("validation", "test")},
    ), tokenizers


def identity(tokenizers):
    """Checksums that identify the tokenizers."""
    return [hashlib.sha256(tokenizer.model_bytes).hexdigest() for tokenizer in tokenizers]


def given_sets(settings, reading, corpora):
    """The validation and test sets that were given, {name: HeldOut}."""
    if settings.validation:
        corpus = reading.given_validation()
        tag = sources.tags_of(settings.tag).get(settings.validation[0], "")
        return {"validation": set_of([corpus], [tag])}
    with_splits = [corpus for corpus in corpora if corpus.has_splits]
    sets = {}
    for name in ("validation", "test") if with_splits else ():
        found = []
        for corpus in with_splits:
            files = []
            cleaned = clean_blocks(corpus.blocks(name, files), Rules())
            found.append(dataclasses.replace(cleaned, files=tuple(files)))
        sets[name] = set_of(found, [corpus.tag for corpus in with_splits])
    return sets


def set_of(corpora, tags):
    """The `HeldOut` of several `pairs.Corpus`, each with its tag."""
    return HeldOut(
        pairs=[pair for corpus in corpora for pair in corpus.pairs()],
        tags=[tag for corpus, tag in zip(corpora, tags, strict=True) for _ in range(len(corpus))],
        record=corpora[0].record() if len(corpora) == 1 else [c.record() for c in corpora],
        summary="; ".join(corpus.summary() for corpus in corpora),
        files=tuple(file for corpus in corpora for file in corpus.files),
    )


def hold_out(pile, seed, tags):
    """Takes validation pairs out of a pile."""
    count, every = min(HELD_OUT, -(-len(pile) // 10)), len(pile)
    if count >= every:
        raise CorpusError(
            f"cannot hold out {count} of {every} pairs for validation: give more pairs, or "
            "--validation"
        )
    numbers = pile.chosen(count, seed)
    found = list(pile.read(numbers))
    pile.kept[numbers] = False
    return HeldOut(
        pairs=[(source, target) for source, target, _ in found],
        tags=[tags[part] for *_, part in found],
        record=record(count, (), {}),
        summary=f"{count:,} pairs held out",
        files=(),
    )


def measured_rules(settings, corpora):
    """The `Rules` of cleaning; what is usual is measured on the first lines of each corpus."""
    rules = Rules(filters=settings.filters, languages=settings.languages)
    if not rules.filters:
        return rules
    firsts = (next(corpus.blocks("train", []), None) for corpus in corpora)
    pairs = itertools.chain.from_iterable(rows(block) for block in firsts if block)
    return rules.measured_on(pairs)


def make_batches(settings, reading, found, tokenizers, scratch):
    """The encoded pairs as batches of token ids, which may write files into `scratch`."""
    options = {
        "tokens_per_batch": settings.tokens_per_batch,
        "seed": settings.seed,
        "start_id": tokenizers[1].start_id,
        "end_id": tokenizers[1].end_id,
        "max_length": min(LONGEST, settings.tokens_per_batch),
        "parts": make_parts(settings, reading, found.parts),
        "scratch": scratch,
    }
    if not settings.subword_sampling:
        return Batches(*found.sides, **options)
    sampled = (
        SampledSubwords(
            ids,
            tokenizer,
            share=settings.subword_sampling,
            seed=[settings.seed, number],
            scratch=scratch,
        )
        for number, (ids, tokenizer) in enumerate(zip(found.sides, tokenizers, strict=True))
    )
    return SampledBatches(*sampled, **options)


def make_parts(settings, reading, sizes):
    """The corpora as `Part`s of the encoded pairs, by their weights."""
    rates = sources.rates(reading.corpora(), sizes, settings.temperature)
    ends = list(itertools.accumulate(sizes))
    return [
        Part(end - size, end, rate)
        for size, end, rate in zip(sizes, ends, rates, strict=True)
        if size
    ]


def learn_tokenizers(settings, pile, excluded, tags):
    """Learns the vocabulary, or one for each side, from the training pairs."""
    numbers = pile.spaced(LEARNED // 2 if settings.joint_vocab else LEARNED)
    pairs = [
        (tagged(tags[part], source), target)
        for source, target, part in pile.read(numbers)
        if source not in excluded[0] and target not in excluded[1]
    ]
    columns = [[pair[side] for pair in pairs] for side in (0, 1)]
    columns = [columns[0] + columns[1]] if settings.joint_vocab else columns
    try:
        tokenizers = [SubwordTokenizer.learn(lines, settings.vocab_size) for lines in columns]
    except ValueError as error:
        raise CorpusError(str(error)) from error
    return (tokenizers[0], tokenizers[-1])


def extended(known, learned):
    """The known tokenizers of both sides with the subwords of the learned ones."""
    try:
        source = known[0].extended(learned[0])
        return (source, source if known[0] is known[1] else known[1].extended(learned[1]))
    except ValueError as error:
        raise CorpusError(f"--extend_vocab: {error}") from error


def summary(settings, reading, found, tokenizers, batches):
    """Lines about what was read, and what was made of it."""
    lines = list(found.summaries)
    if settings.phrasebook:
        lines.insert(
            0,
            "The built-in phrasebook: sentences that a small grammar generates, to try training "
            "and serving; BLEU on them is a self-test. To train on real sentences, give --data.",
        )
    lines.append(reading.vocabulary(tokenizers))
    lines.append(f"batches: {batches.summary()}")
    return "\n".join(lines)
