"""The content of a published model, in either form."""

import dataclasses

import numpy as np

# A logit bias with which the probability of an id is 0.
BANNED = -1e9


class MarianError(Exception):
    """Why a published model cannot be imported, in one line."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The subwords of a side, by the published ids.

    Fields:
        pieces: A list of str; empty for ids without a piece.
        end_id: The published id of the end of a sentence.
        unknown_id: The published id of unknown subwords.
        pad_id: The published id of padding, or None if the model has none.
        start_id: The id whose embedding the decoder starts from, or None for a vector of zeros.
    """

    pieces: list
    end_id: int
    unknown_id: int
    pad_id: int | None = None
    start_id: int | None = None

    @property
    def order(self):
        """The published id of each of our ids, -1 if there is none: int `[vocab]`.

        Ours begin with padding, unknown, start and end.
        """
        special = {self.pad_id, self.unknown_id, self.end_id}
        rest = [i for i in range(len(self.pieces)) if i not in special]
        first = [self.pad_id, self.unknown_id, self.start_id, self.end_id]
        return np.array([-1 if i is None else i for i in (*first, *rest)])

    def own_pieces(self):
        """The pieces in our order, from id 4 on."""
        return [self.pieces[i] for i in self.order[4:]]

    def rows(self, table):
        """A table of vectors `[published vocab, width]` in our order, with zeros for new ids."""
        order = self.order
        return np.where((order >= 0)[:, None], table[order], np.float32(0))

    def biases(self, bias, banned=()):
        """Logit biases `[published vocab]` in our order, with a ban on ids never to be produced."""
        order = self.order
        bias = np.where(order >= 0, bias[order], np.float32(BANNED))
        bias[np.isin(order, [*banned])] = BANNED
        bias[2] = BANNED  # the start id, which can have the row of another id
        return bias.astype("float32")


@dataclasses.dataclass(frozen=True)
class Published:
    """A published model.

    Fields:
        name: The name of its folder or file.
        form: "Marian release" or "transformers folder".
        config: Fields of a `TransformerConfig` other than the sizes of the vocabularies.
        arrays: {name: float32 array} under Marian's own names, matrices `[in, out]`.
        source: The `Vocabulary` of sources.
        target: The `Vocabulary` of translations; the same object for a joint vocabulary.
        spms: Bytes of the SentencePiece models `(source, target)`.
        decoding: "beams", and fields of a `DecodingConfig`.
        banned: Published target ids that are never to be produced.
        notes: Lines about options of the published files that have no effect here.
    """

    name: str
    form: str
    config: dict
    arrays: dict
    source: Vocabulary
    target: Vocabulary
    spms: tuple
    decoding: dict
    banned: tuple = ()
    notes: tuple = ()


def decoding_options(beams, alpha, longest):
    """The beams and fields of a `DecodingConfig`, with the penalty length^alpha."""
    beams, alpha = int(beams), float(alpha)
    if alpha < 0:
        raise MarianError(f"expected a length penalty of 0 or more; the model has {alpha}")
    return {
        "beams": beams,
        "length_penalty": alpha,
        "length_penalty_offset": 0.0,
        "max_length": int(longest),
    }
