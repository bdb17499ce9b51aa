"""What a run learns from: pairs, tokenizers and batches, made from its settings."""

import dataclasses

from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus.batches import Batches
from training.corpus.pairs import Corpus, clean, read_pairs, read_tfds
from training.corpus.sampled_subwords import SampledBatches, SampledSubwords
from training.run.folder import RunError, tokenizer_paths, write_atomically

HELD_OUT = 1000  # pairs to validate with, where the settings name none; at most a tenth of all
LONGEST = 256  # tokens of a side; longer pairs are dropped


@dataclasses.dataclass(frozen=True)
class Data:
    """Everything that a run learns from and is measured on.

    Fields:
        batches: The `Batches` or `SampledBatches` to train on.
        validation: List of `(source, reference)`.
        test: The same for a test set, or empty.
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


def prepare(settings, folder):
    """Reads the pairs, learns the tokenizers, and makes the batches.

    Writes nothing: that is for later, when nothing of the settings can be wrong any more.

    Args:
        settings: A `TrainingConfig`.
        folder: The `RunFolder`. If a run goes on in it, the tokenizers are loaded from it.

    Raises:
        RunError: If the pairs cannot be read or cannot be learned from, or are not those that
            the run began with.
    """
    try:
        train, validation, test = read(settings)
        sets = {"train": train, "validation": validation, "test": test}
        sets = {name: corpus for name, corpus in sets.items() if len(corpus)}
        description = {name: corpus.record() for name, corpus in sets.items()}
        folder.keep_to(description, overwrite=settings.overwrite)
        # Of another start, which came to nothing, there may be tokenizers too.
        tokenizers = load_tokenizers(folder) if folder.goes_on else None
        tokenizers = tokenizers or learn_tokenizers(settings, train)
        batches = make_batches(settings, train, tokenizers)
    except (ValueError, RuntimeError, OSError) as error:
        raise RunError(str(error)) from error
    return Data(
        batches=batches,
        validation=list(validation.pairs()),
        test=list(test.pairs()),
        tokenizers=tokenizers,
        description=description,
        summary=summary(settings, sets, tokenizers, batches),
    )


def make_batches(settings, train, tokenizers):
    """The pairs as batches of token ids."""
    options = {
        "tokens_per_batch": settings.tokens_per_batch,
        "seed": settings.seed,
        "start_id": tokenizers[1].start_id,
        "end_id": tokenizers[1].end_id,
        "max_length": min(LONGEST, settings.tokens_per_batch // settings.devices),
        "rows_multiple": settings.devices,
    }
    sides = list(zip(tokenizers, (train.sources, train.targets), strict=True))
    sides = [(tokenizer.encode_lines(lines), tokenizer) for tokenizer, lines in sides]
    if not settings.subword_sampling:
        return Batches(*(ids for ids, _ in sides), **options)
    sampled = (
        SampledSubwords(*side, share=settings.subword_sampling, seed=[settings.seed, number])
        for number, side in enumerate(sides)
    )
    return SampledBatches(*sampled, **options)


def read(settings):
    """The training, validation and test pairs, no sentence of the latter in the former."""
    if settings.phrasebook:
        from training.corpus import phrasebook

        return tuple(clean(pairs) for pairs in phrasebook.split(settings.seed))
    if settings.data and settings.data.startswith("tfds:"):
        name = settings.data.removeprefix("tfds:")
        train, validation, test = (
            read_tfds(name, split) for split in ("train", "validation", "test")
        )
        return train.without(validation).without(test), validation, test
    train = read_pairs(settings.data or settings.source, settings.target)
    if settings.validation:
        validation = read_pairs(*settings.validation)
        return train.without(validation), validation, Corpus((), ())
    train, validation = train.hold_out(min(HELD_OUT, -(-len(train) // 10)), settings.seed)
    return train, validation, Corpus((), ())


def load_tokenizers(folder):
    """The `(source, target)` tokenizers of a run folder's path, or None if there are none."""
    joint, both = tokenizer_paths(folder.path)
    if joint.exists():
        return (SubwordTokenizer.load(joint),) * 2
    if all(path.exists() for path in both):
        return tuple(SubwordTokenizer.load(path) for path in both)
    return None


def learn_tokenizers(settings, corpus):
    """Learns the vocabulary, or one for each side, from the training pairs."""
    sides = (corpus.lines(),) if settings.joint_vocab else (corpus.sources, corpus.targets)
    tokenizers = [SubwordTokenizer.learn(lines, settings.vocab_size) for lines in sides]
    return (tokenizers[0], tokenizers[-1])


def save_tokenizers(tokenizers, folder):
    """Writes `(source, target)`, into one file if they are the same, where they are looked for."""
    joint, both = tokenizer_paths(folder.path)
    paths = (joint,) if tokenizers[0] is tokenizers[1] else both
    for tokenizer, path in zip(tokenizers, paths, strict=False):
        write_atomically(path, tokenizer.model_bytes)


def summary(settings, sets, tokenizers, batches):
    """What was read and made of it, a line each."""
    lines = [f"{name}: {corpus.summary()}" for name, corpus in sets.items()]
    if settings.phrasebook:
        lines.insert(
            0,
            "The built-in phrasebook: sentences that a small grammar generates, an honest "
            "demonstration of training and serving. For real sentences give --data.",
        )
    sizes = dict.fromkeys(f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers)
    lines.append(f"vocabulary: {' and '.join(sizes)} subwords")
    lines.append(f"batches: {batches.summary()}")
    return "\n".join(lines)
