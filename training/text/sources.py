"""The corpora of a text task: files of two columns, plain text, or sentences of the phrasebook."""

import re

from training.corpus import pile, sources
from training.corpus.files import Block, CorpusError, rows, text_of

NOTHING = "-"  # stands for the source side of plain text
LONGEST_LINE = 600  # characters; a longer line of plain text is cut between words
_SPACES = re.compile(r"\s+")


class Sentences:
    """Files of `text<TAB>label` lines, of `tokens<TAB>tags` lines, or of plain text.

    Args:
        source: A `sources.Source`.
        task: "classify", "tag", "language" or "masked".
    """

    tag = ""

    def __init__(self, source, task):
        self._source, self._task = source, task
        self.name, self.weight = source.name, source.weight
        self.has_splits = source.has_splits

    def blocks(self, split, read):
        """As `Source.blocks`, with two columns, of which the second one is learned."""
        change = {"classify": _labelled, "tag": _tagged}.get(self._task, _plain)
        for block in self._source.blocks(split, read):
            pairs = [*change(block)]
            columns = zip(*pairs, strict=True) if pairs else ((), ())
            texts = tuple(b"".join(f"{text}\n".encode() for text in column) for column in columns)
            yield Block((block.paths * 2)[:2], block.first, texts)


class PhrasebookText(sources.Phrasebook):
    """The default corpus of a task: sentences of the phrasebook's grammar.

    Args:
        seed: Seed of the sentences.
        task: As for `Sentences`.
    """

    def __init__(self, seed, task):
        super().__init__(seed)
        self._task = task

    def blocks(self, split, read):
        """As `Source.blocks`."""
        from training import phrasebook

        self._split = self._split or phrasebook.split(self._seed, task=self._task)
        pairs = getattr(self._split, split)
        if self._task in ("language", "masked"):
            pairs = [(NOTHING, text) for text in pairs]
        return pile.in_memory(pairs)


def corpora(settings):
    """The sources of a run, a list."""
    if settings.phrasebook:
        return [PhrasebookText(settings.seed, settings.task)]
    return [Sentences(source, settings.task) for source in sources.parse(settings.data)]


def _labelled(block):
    for number, (text, label) in enumerate(rows(block), block.first):
        if len(label.split()) != 1:
            raise CorpusError(
                f"{block.paths[0]}, line {number}: expected `text<TAB>label`, a label without "
                f"spaces. Received: {label[:80]!r}"
            )
        yield text, label.strip()


def _tagged(block):
    for number, (tokens, tags) in enumerate(rows(block), block.first):
        counts = len(tokens.split()), len(tags.split())
        if counts[0] != counts[1]:
            raise CorpusError(
                f"{block.paths[0]}, line {number}: expected `tokens<TAB>tags`, one tag for each "
                f"token. Received {counts[0]} tokens and {counts[1]} tags: {tokens[:80]!r}"
            )
        yield " ".join(tokens.split()), " ".join(tags.split())


def _plain(block):
    for line in text_of(block, 0).removesuffix("\n").split("\n"):
        for piece in _pieces(_SPACES.sub(" ", line).strip()):
            yield NOTHING, piece


def _pieces(line):
    """A line, cut between words so that no part is too long; a word that is too long is cut too."""
    while len(line) > LONGEST_LINE:
        cut = line.rfind(" ", 1, LONGEST_LINE)
        cut = cut if cut > 0 else LONGEST_LINE
        yield line[:cut]
        line = line[cut:].lstrip()
    yield line
