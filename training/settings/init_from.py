"""Training that starts from another run: fine-tuning, a student of a teacher, a text task."""

import re
from pathlib import Path

import numpy as np

from keras_tfmr.text.spans import SLOTS
from training.corpus.read import sha256
from training.run.files import RunError
from training.run.run_folder import RunFolder, differences, in_words
from training.settings.config import NOTHING, SIZES
from training.settings.recipes import RECIPES

RECIPE = "base"  # for a run that names no preset, such as an imported one
# A published model bans subwords by biases of -1e9, which label smoothing would add to the loss.
# A bias of -50 bans them as well.
LEAST_BIAS = -50.0
LAYERS = ("encoder_layers", "decoder_layers", "decoder_self")
ENCODERS = ("masked", "classify", "tag")  # the tasks whose models have the same encoder
FREE = (*LAYERS, "dropout_rate")  # that may differ from a teacher's
_LAYER = re.compile(r"(encoder|decoder)/layer_(\d+)/")
_OF_SUBWORDS = re.compile(r"(source_)?embedding/tokens/|logits/")


class Start:
    """A finished run, of a training or of an import, that another run begins from.

    Args:
        path: Its folder.

    Attributes:
        kind: Of the model.
        config: The model's config, a dictionary.
        settings: {setting: value} of the run.
        weights: The file that holds the weights.
    """

    def __init__(self, path):
        self.path, self.folder = Path(path), RunFolder(path)
        self.described = self.folder.read_config()
        self.settings = self.described["arguments"]
        self.kind, self.config = (self.described["model"][n] for n in ("kind", "config"))
        self.weights = self.folder.best
        for file in (self.weights, self.folder.results):
            if not file.exists():
                raise RunError(f"{path} is not a finished run: it has no {file.relative_to(path)}")

    def settings_for(self, given, config_class):
        """The given settings, with those that follow from this run.

        A model of the same sizes is fine-tuned: it has the preset of the run, and by default a
        third of its rate. One for another task begins anew but for its encoder, so it has the whole
        recipe of that preset. A translator of another preset, or of other layers, is a student,
        which has its own recipe.

        Args:
            given: {setting: value}.
            config_class: `TrainingConfig` or `TextConfig`.

        Raises:
            ValueError: If the run is of no such task, or a given setting contradicts it.
        """
        task = given.get("task", config_class.task)
        self._check_kind(task)
        model = self.kind if self.kind in RECIPES else "transformer"
        preset = self.settings.get("preset", RECIPE)
        sizes = {name: self.config[name] for name in SIZES} if model == "transformer" else {}
        other_preset = given.get("preset", preset) != preset
        other_layers = any(given.get(n, sizes.get(n)) != sizes.get(n) for n in LAYERS)
        is_student = self.kind == "transformer" and (other_preset or other_layers)
        fixed = {"model": model, "joint_vocab": self.config["joint_vocab"]}
        if not given.get("extend_vocab"):
            fixed["vocab_size"] = self.settings.get("vocab_size", self.config["target_vocab"])
        if not is_student:
            fixed |= {"preset": preset, **sizes}
        fixed = {name: value for name, value in fixed.items() if config_class.reads(name, task)}
        self._check_same(fixed, given, config_class)
        if is_student:  # of the teacher's sizes, unless it has a preset of its own
            defaults = {} if other_preset else {"preset": preset, **sizes}
        else:
            same_task = task in ("translation", self.kind)
            defaults = RECIPES[model][preset].for_tuning() if same_task else {}
            defaults["dropout_rate"] = self.config["dropout_rate"]
        if task == "translation":
            defaults |= self._protection(given)
        return {**defaults, **given, **fixed}

    def _check_kind(self, task):
        """Raises a ValueError unless a task can begin from a run of this kind."""
        kinds = {"translation": tuple(RECIPES), "language": ("language",)}.get(task, ENCODERS)
        if self.kind not in kinds:
            what = "a translator" if task == "translation" else f"a run of --task {task}"
            raise ValueError(
                f"{what} can begin from a run of {' or '.join(kinds)}. Received: --init_from "
                f"{self.path}, a run of {self.kind}"
            )

    def _protection(self, given):
        """The default of what is protected; a ValueError if the vocabulary has no slots for it."""
        own = tuple(self.settings.get("protect") or ())
        if own or given.get("extend_vocab"):
            return {"protect": own} if own else {}
        if given.get("protect", NOTHING) != NOTHING:
            raise ValueError(
                f"--protect needs slots, which the vocabulary of --init_from {self.path} lacks: "
                f"add --extend_vocab. Received: {' '.join(given['protect'])}"
            )
        return {"protect": ()}

    def _check_same(self, fixed, given, config_class):
        for name, value in fixed.items():
            if given.get(name, value) != value:
                raise ValueError(
                    f"{config_class.spelt(name)} is that of --init_from {self.path}, {value}: "
                    f"leave it out. Received: {given[name]}"
                )

    def config_for(self, task):
        """The config of the model that learns a task: that of the run, with sizes and dropout."""
        from keras_tfmr.presets.models import read_config
        from training.tasks import preset_of

        settings = task.settings
        vocabs = [tokenizer.vocab_size for tokenizer in task.tokenizers]
        fields = {**self.config, "dropout_rate": settings.dropout_rate}
        if settings.task == "translation":
            given = {n: v for n, v in settings.sizes().items() if v is not None}
            sizes = {**preset_of(self.kind, settings.preset), **given}
            fields |= {name: value for name, value in sizes.items() if name in fields}
            fields |= dict(zip(("source_vocab", "target_vocab"), vocabs, strict=True))
        return read_config(task.kind, fields)

    def tokenizers(self):
        """`(source, target)`, the same one twice for a joint vocabulary."""
        found = self.folder.tokenizers()
        if found is None:
            raise RunError(f"{self.path} has no tokenizers")
        if (languages := found[0].target_languages) and found[0].target_language is None:
            raise RunError(
                f"{self.path} has several target languages, and none for texts that choose none: "
                f"repeat import_marian.py with --language, one of {', '.join(languages)}"
            )
        return found

    def assign(self, model, task):
        """Gives the weights to a new model, which is to learn a task."""
        if task.settings.task != "translation":
            if not task.settings.fresh_weights:
                self._assign_text(model, task)
            return
        if changes := self._changes(model):
            print(f"The model begins with random weights: it differs in {in_words(changes)}.")
            return
        self._assign_translator(model, task)
        for weight in model.trainable_variables:
            if weight.path.endswith("bias"):
                weight.assign(np.maximum(values(weight), LEAST_BIAS))

    def _changes(self, model):
        found = differences(self.config, model.config.to_dict())
        return {n: p for n, p in found.items() if n not in (*FREE, "source_vocab", "target_vocab")}

    def _assign_translator(self, model, task):
        old = self.folder.model(self.weights)
        if task.settings.extend_vocab:
            carry_over(old, self.tokenizers(), model, task.tokenizers)
        elif self.kind == "transformer":
            spread_layers(old, model)
        else:
            model.set_weights(old.get_weights())
        its, new = (config.get("decoder_self") for config in (self.config, model.config.to_dict()))
        if its != new:
            print(f"The decoder's first sublayers begin with random weights: {new}, not {its}.")

    def _assign_text(self, model, task):
        donor = self.folder.model(self.weights)
        if self.kind != "language":
            model, donor = model.encoder, donor.encoder
        for weight, its in zip(model.weights, donor.weights, strict=True):
            weight.assign(its)

    def record(self):
        """Its record in config.json, with its licence and where it started itself."""
        of_it = {n: self.described[n] for n in ("published", "start") if n in self.described}
        return {"path": str(self.path), "weights_sha256": sha256(self.weights), **of_it}


def values(variable):
    """The NumPy value of a variable."""
    from keras import ops

    return ops.convert_to_numpy(variable)


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
            weight.assign(values(known[path]))
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
    found = _LAYER.match(path)
    if not found:
        return path
    side, number = found.groups()
    number = origin[side][int(number)]
    return None if number is None else f"{side}/layer_{number}/{path[found.end() :]}"


def carry_over(old, old_tokenizers, new, new_tokenizers):
    """Gives the weights of a model to one that differs in its vocabularies only.

    Each comes with its `(source, target)` tokenizers.

    A subword that both vocabularies have keeps its embedding. Another begins with the mean of the
    embeddings of its parts in the old vocabulary; so do its column of the logits and its bias.

    Reference: Gee et al. 2022, Fast Vocabulary Transfer for Language Model Compression
    (arXiv 2402.09977).
    """
    source, target = map(_parts_of, old_tokenizers, new_tokenizers)
    arrays = {weight.path: values(weight) for weight in old.weights}
    for weight in new.weights:
        value, found = arrays[weight.path], _OF_SUBWORDS.search(weight.path)
        if found:
            axis = -1 if "logits/" in weight.path else 0
            parts = source if found[1] else target
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
        [i] if i in special else split(numbers.get(piece, piece), ids) or [old.unknown_id]
        for i, piece in enumerate(_pieces(new))
    ]


def _pieces(tokenizer):
    return [piece.decode() for piece in tokenizer.pieces(np.arange(tokenizer.vocab_size)).numpy()]


def split(piece, ids):
    """The ids of the longest known parts of a piece from left to right, leaving out the unknown.

    >>> split("abcd", {"a": 4, "ab": 5, "d": 6})
    [5, 6]
    """
    found, at = [], 0
    while at < len(piece):
        end = next((end for end in range(len(piece), at, -1) if piece[at:end] in ids), None)
        if end is not None:
            found.append(ids[piece[at:end]])
        at = end or at + 1
    return found
