"""What a new model takes from the run that it begins from: its config and its weights."""

import re

import numpy as np
from keras import ops

from keras_tfmr._files import blaming
from keras_tfmr.presets.models import read_config
from keras_tfmr.text.spans import SLOTS
from training.command.disk import changes_in_words, differences
from training.settings.init_from import LAYERS
from training.tasks import sizes_of

# A published model bans subwords by biases of -1e9, which label smoothing would add to the loss.
# A bias of -50 bans them as well.
LEAST_BIAS = -50.0
FREE = (*LAYERS, "dropout_rate", "attention_dropout_rate")  # that may differ from a teacher's
_LAYER = re.compile(r"(encoder|decoder)/layer_(\d+)/")
_OF_SUBWORDS = re.compile(r"(source_)?embedding/tokens/|logits/")


def config_for(start, task):
    """The config of the model that learns a task: that of the run, with sizes and dropout."""
    settings = task.settings
    vocabs = [tokenizer.vocab_size for tokenizer in task.tokenizers]
    fields = {**start.config, **settings.dropouts()}
    if settings.task == "translation":
        fields |= {n: value for n, value in sizes_of(settings).items() if n in fields}
        fields |= dict(zip(("source_vocab", "target_vocab"), vocabs, strict=True))
    with blaming(f"{start.folder.config}: model.config"):
        return read_config(task.kind, fields)


def assign(start, model, task):
    """Gives the weights to a new model, which is to learn a task."""
    if task.settings.task != "translation":
        if not task.settings.fresh_weights:
            _assign_text(start, model, task)
        return
    if changes := _changes(start, model):
        print(f"The model begins with random weights: it differs in {changes_in_words(changes)}.")
        return
    _assign_translator(start, model, task)
    for weight in model.trainable_variables:
        if weight.path.endswith("bias"):
            weight.assign(np.maximum(ops.convert_to_numpy(weight), LEAST_BIAS))


def _changes(start, model):
    changes = differences(start.config, model.config.to_dict())
    return {n: p for n, p in changes.items() if n not in (*FREE, "source_vocab", "target_vocab")}


def _assign_translator(start, model, task):
    old = start.folder.model(start.weights)
    if task.settings.extend_vocab:
        carry_over(old, start.tokenizers(), model, task.tokenizers)
    elif start.kind == "transformer":
        spread_layers(old, model)
    else:
        model.set_weights(old.get_weights())
    its, new = (config.get("decoder_self") for config in (start.config, model.config.to_dict()))
    if its != new:
        print(f"The decoder's first sublayers begin with random weights: {new}, not {its}.")


def _assign_text(start, model, task):
    donor = start.folder.model(start.weights)
    if start.kind != "language":
        model, donor = model.encoder, donor.encoder
    for weight, its in zip(model.weights, donor.weights, strict=True):
        weight.assign(its)


def spread_layers(teacher, student):
    """Gives a teacher's weights to a model with other layers.

    A stack of fewer layers begins with some of the teacher's, evenly spread (Shleifer and Rush
    2020, arXiv 2010.13002). One of more layers begins with all of them, and between them layers
    that change nothing yet: the output of each of their sublayers is zero. Sublayers of another
    kind than the teacher's stay as they are.
    """
    known = {weight.path: weight for weight in teacher.weights}
    origin = {
        side: origins(*(getattr(m.config, f"{side}_layers") for m in (teacher, student)))
        for side in ("encoder", "decoder")
    }
    for weight in student.weights:
        path = _origin_of(weight.path, origin)
        if path in known:
            weight.assign(ops.convert_to_numpy(known[path]))
        elif path is None and "/output/" in weight.path:
            weight.assign(np.zeros(weight.shape))


def origins(teacher, student):
    """The teacher's layer that each of the student's begins as; None for a new one.

    >>> origins(3, 1), origins(3, 2), origins(3, 6)
    ([0], [0, 2], [0, None, 1, None, 2, None])
    """
    if student <= teacher:
        return np.linspace(0, teacher - 1, student).round().astype(int).tolist()
    places = {number * student // teacher: number for number in range(teacher)}
    return [places.get(number) for number in range(student)]


def _origin_of(path, origin):
    """The path of the teacher's weight that a student's begins as; None if its layer is new."""
    match = _LAYER.match(path)
    if not match:
        return path
    side, number = match.groups()
    number = origin[side][int(number)]
    return None if number is None else f"{side}/layer_{number}/{path[match.end() :]}"


def carry_over(old, old_tokenizers, new, new_tokenizers):
    """Gives the weights of a model to one that differs in its vocabularies only.

    Each comes with its `(source, target)` tokenizers.

    A subword that both vocabularies have keeps its embedding. Another begins with the mean of the
    embeddings of its parts in the old vocabulary; so do its column of the logits and its bias.

    Reference: Gee et al. 2022, Fast Vocabulary Transfer for Language Model Compression
    (arXiv 2402.09977).
    """
    source, target = map(_parts_of, old_tokenizers, new_tokenizers)
    arrays = {weight.path: ops.convert_to_numpy(weight) for weight in old.weights}
    for weight in new.weights:
        value, match = arrays[weight.path], _OF_SUBWORDS.search(weight.path)
        if match:
            axis = -1 if "logits/" in weight.path else 0
            parts = source if match[1] else target
            value = np.stack([value.take(ids, axis).mean(axis) for ids in parts], axis)
        weight.assign(value)


def _parts_of(old, new):
    """For each id of a tokenizer, the ids of an older one that make up the same subword.

    A new slot begins as its number, which a translator copies as well.
    """
    ids = {piece: i for i, piece in enumerate(_pieces(old))}
    numbers = {slot: str(i) for i, slot in enumerate(SLOTS) if slot not in ids}
    special = {new.pad_id, new.unknown_id, new.bos_id, new.eos_id}  # the same in all tokenizers
    return [
        [i] if i in special else known_parts(numbers.get(piece, piece), ids) or [old.unknown_id]
        for i, piece in enumerate(_pieces(new))
    ]


def _pieces(tokenizer):
    return [piece.decode() for piece in tokenizer.pieces(np.arange(tokenizer.vocab_size)).numpy()]


def known_parts(piece, ids):
    """The ids of the longest known parts of a piece from left to right, leaving out the unknown.

    >>> known_parts("abcd", {"a": 4, "ab": 5, "d": 6})
    [5, 6]
    """
    parts, at = [], 0
    while at < len(piece):
        end = next((end for end in range(len(piece), at, -1) if piece[at:end] in ids), None)
        if end is not None:
            parts.append(ids[piece[at:end]])
        at = end or at + 1
    return parts
