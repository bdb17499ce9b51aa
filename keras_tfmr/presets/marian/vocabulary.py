"""The vocabularies of published models, in the forms that they have."""

import dataclasses
import json
import re

import numpy as np

from keras_tfmr.errors import PresetError


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The subwords of a side, by the published ids.

    Fields:
        pieces: A list of str; empty for ids without a piece.
        eos_id: The published id of the end of a sentence.
        unknown_id: The published id of unknown subwords.
        pad_id: The published id of padding, or None if the model has none.
        bos_id: The id whose embedding the decoder starts from, or None for a vector of zeros.
    """

    pieces: list
    eos_id: int
    unknown_id: int
    pad_id: int | None = None
    bos_id: int | None = None

    @property
    def order(self):
        """The published id of each of our ids, -1 if there is none: int `[vocab]`.

        Ours begin with padding, unknown, start and end.
        """
        special = {self.pad_id, self.unknown_id, self.eos_id}
        rest = [i for i in range(len(self.pieces)) if i not in special]
        first = [self.pad_id, self.unknown_id, self.bos_id, self.eos_id]
        return np.array([-1 if i is None else i for i in (*first, *rest)])

    def own_pieces(self):
        """The pieces in our order, from id 4 on."""
        return [self.pieces[i] for i in self.order[4:]]


def vocabulary_of(ids, name, size=None, **fields):
    """The `Vocabulary` of {piece: id} of a file; `size` is the number of ids, if it is known."""
    if missing := [piece for piece in ("</s>", "<unk>") if piece not in ids]:
        raise PresetError(f"{name} has no piece {missing[0]}")
    if min(ids.values()) < 0 or max(ids.values()) > 2 * len(ids) + 1000:
        raise PresetError(f"{name} is not a vocabulary: expected pieces and their ids")
    pieces = [""] * max(max(ids.values()) + 1, size or 0)
    for piece, number in ids.items():
        pieces[number] = piece
    if size and len(pieces) > size:
        raise PresetError(f"{name} has {len(pieces)} pieces, the model {size} embeddings")
    return Vocabulary(pieces, eos_id=ids["</s>"], unknown_id=ids["<unk>"], **fields)


def read_spm(path):
    """The `Vocabulary` of a SentencePiece model that is a vocabulary of Marian's."""
    import sentencepiece

    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise PresetError(f"{path.name} is not a SentencePiece model: {error}") from error
    return vocabulary_of({model.id_to_piece(i): i for i in range(len(model))}, path.name)


def read_yml(path):
    """The `Vocabulary` of a YAML file of Marian's.

    It is read line by line, not by PyYAML, which also ends lines at U+0085 and U+2028, which occur
    in pieces, and takes ten seconds for 60,000 lines.
    """
    ids, key = {}, None
    text = path.read_bytes().decode("utf-8")
    for number, line in enumerate(re.split("\r?\n", text), 1):
        if line.startswith("? "):  # a long key is on a separate line
            key = line[2:]
            continue
        match = re.fullmatch(r"(.*): *(\d+)\s*", line, re.DOTALL)
        if match:
            ids[_scalar(match[1] if key is None else key)] = int(match[2])
            key = None
        elif line.strip() and not line.startswith("#") and line not in ("---", "..."):
            raise PresetError(
                f"{path.name}, line {number}: expected a piece and its id, found {line!r}"
            )
    return vocabulary_of(ids, path.name)


def _scalar(text):
    import yaml

    if text.startswith('"'):
        plain = text[1:-1]
        return yaml.load(text, Loader=yaml.BaseLoader) if "\\" in plain else plain
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def write_yml(path, pieces):
    """Writes a piece and its id a line."""
    lines = (f"{json.dumps(p, ensure_ascii=False)}: {i}\n" for i, p in enumerate(pieces))
    path.write_text("".join(lines), encoding="utf-8")
