"""How the corpus of a text task is read, for `training.prepare`."""

import dataclasses
import itertools

from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus.clean import Rules
from training.corpus.files import CorpusError
from training.corpus.pairs import clean_blocks
from training.corpus.sources import Source
from training.prepare import LEARNED, Pairs
from training.text import sources
from training.text.labels import Labels


class TextReading(Pairs):
    """Texts with labels, or texts alone, in the place of sentence pairs.

    Args:
        settings: A `TextConfig`.
        tokenizer: Of the run to start from, or None to learn one.
    """

    def __init__(self, settings, tokenizer=None):
        super().__init__(settings)
        self.tokenizer = tokenizer
        self.plain = settings.task in ("language", "masked")

    def corpora(self):
        return sources.corpora(self.settings)

    def given_validation(self):
        read = []
        corpus = sources.Sentences(Source(self.settings.validation[0]), self.settings.task)
        cleaned = clean_blocks(corpus.blocks("train", read), Rules())
        return dataclasses.replace(cleaned, files=tuple(read))

    def excluded(self, pairs):
        """Only the texts are excluded, because labels occur in training and validation."""
        self.held_out = pairs
        texts = {pair[self.plain] for pair in pairs}
        return [set(), texts] if self.plain else [texts, set()]

    def tokenizers(self, pile, excluded, tags):
        learned = self.tokenizer or self.learn(
            text
            for pair in pile.read(pile.spaced(LEARNED))
            if (text := pair[self.plain]) not in excluded[self.plain]
        )
        if self.plain:
            return (learned, learned)
        every = pile.read(pile.spaced(len(pile)))
        # With the held-out texts, which may have a label that no training text has.
        return (learned, Labels.learn(row[1] for row in itertools.chain(every, self.held_out)))

    def learn(self, lines):
        try:
            return SubwordTokenizer.learn(lines, self.settings.vocab_size)
        except ValueError as error:
            raise CorpusError(str(error)) from error

    def vocabulary(self, tokenizers):
        lines = [f"vocabulary: {tokenizers[0].vocab_size:,} subwords"]
        if not self.plain:
            names = tokenizers[1].names
            lines.append(f"labels: {len(names)}, {', '.join(names[:12])}")
        return "\n".join(lines)
