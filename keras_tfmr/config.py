"""What the configs of all models share: frozen dataclasses with a JSON round trip."""

import dataclasses
import json
from typing import ClassVar

from keras_tfmr.layers import _checks


class Config:
    """The base of every config, a frozen dataclass that may have `presets` by name."""

    presets: ClassVar = {}

    def _check_sizes(self, *names):
        for name in names:
            _checks.positive_int(name, getattr(self, name))

    def _check_joint_vocab(self):
        if self.joint_vocab and self.source_vocab != self.target_vocab:
            raise ValueError(
                "A joint vocabulary has one size. Received: "
                f"source_vocab={self.source_vocab}, target_vocab={self.target_vocab}"
            )

    @classmethod
    def preset(cls, name, **fields):
        """The config of a named size, with `fields` replaced."""
        if name not in cls.presets:
            known = ", ".join(cls.presets)
            raise ValueError(f"Unknown preset {name!r}. Expected one of: {known}")
        return cls(**{**cls.presets[name], **fields})

    def replace(self, **fields):
        """A copy with `fields` replaced."""
        return dataclasses.replace(self, **fields)

    def to_dict(self):
        """The fields as a dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields):
        """The config of a dictionary of fields; unknown ones are an error."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(
                f"Unknown fields of a {cls.__name__}: {unknown}. Expected some of: {sorted(known)}"
            )
        return cls(**fields)

    def to_json(self):
        """The fields as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text):
        """The config that `to_json` wrote."""
        return cls.from_dict(json.loads(text))
