"""The task of a student, which begins as a part of its teacher."""

import re

import numpy as np

from training.run.claim import differences, in_words
from training.run.models import make_model
from training.run.start import Start
from training.run.task import Translation

_LAYER = re.compile(r"(encoder|decoder)/layer_(\d+)/")
_FREE = ("encoder_layers", "decoder_layers", "dropout_rate")  # that may differ from the teacher's


class Student(Translation):
    """Learns to translate as a teacher does, with its tokenizers and, at its width, its layers.

    Args:
        settings: A resolved `TrainingConfig`, whose data are the teacher's translations.
        teacher: Folder of the teacher's run.
    """

    def __init__(self, settings, teacher):
        super().__init__(settings)
        self.start = Teacher(teacher)

    def prepare(self, claim):
        data = super().prepare(claim)
        if found := self.start.differs(self.config(data)):
            told = in_words(found)
            print(f"The student begins with random weights: it differs from its teacher in {told}.")
        return data

    def config(self, data=None):
        return self.new_config(data)


class Teacher(Start):
    """A finished run that a model with other numbers of layers begins from.

    A student of fewer layers begins with some of the teacher's, evenly spread (Shleifer and Rush
    2020, arXiv 2010.13002). One of more layers begins with all of them, and between them layers
    that change nothing yet: the output of each of their sublayers is zero.
    """

    def differs(self, config):
        """{field: (of the teacher, of the student)} for which no weights are taken over."""
        found = differences(self.config, config.to_dict())
        return {name: pair for name, pair in found.items() if name not in _FREE}

    def _assign(self, model):
        if self.differs(model.config):
            return
        teacher = make_model(self.kind, self.config)
        super()._assign(teacher)
        known = {weight.path: weight for weight in teacher.weights}
        origin = {
            side: origins(self.config[f"{side}_layers"], getattr(model.config, f"{side}_layers"))
            for side in ("encoder", "decoder")
        }
        for weight in model.weights:
            path = origin_of(weight.path, origin)
            if path is not None:
                weight.assign(known[path].value)
            elif "/output/" in weight.path:
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


def origin_of(path, origin):
    """The path of the teacher's weight that a student's begins as; None if its layer is new.

    >>> origin_of("encoder/layer_2/feed_forward/output/bias", {"encoder": [0, None, 1]})
    'encoder/layer_1/feed_forward/output/bias'
    """
    found = _LAYER.match(path)
    if not found:
        return path
    side, number = found.groups()
    number = origin[side][int(number)]
    return None if number is None else f"{side}/layer_{number}/{path[found.end() :]}"
