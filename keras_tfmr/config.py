"""The base of all configs, which can be saved as JSON, and the versions saved beside them."""

import dataclasses
import importlib
import json
import platform
from collections.abc import Mapping
from typing import Any, Self

# Types that checkers cannot follow: a tensor of Keras's backend, or an array or list that it takes
# for one; and tensors nested in tuples, lists and dictionaries.
Tensor = Any
Nested = Any
Shape = tuple[int | None, ...]
# What presets and exports record the versions of.
PACKAGES = ("keras-tfmr", "tensorflow", "tensorflow-text", "keras", "sentencepiece", "numpy")


@dataclasses.dataclass(frozen=True)
class Config:
    """The base of every config, a frozen dataclass."""

    def replace(self, **fields: Any) -> Self:
        """A copy with `fields` replaced."""
        return dataclasses.replace(self, **fields)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dictionary."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The config with the fields of a dictionary; other fields have their defaults.

        Raises:
            ValueError: If a field is unknown.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(
                f"Unknown fields of a {cls.__name__}: {unknown}. Expected some of: {sorted(known)}"
            )
        return cls(**fields)

    def to_json(self) -> str:
        """The fields as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The config that `to_json` wrote."""
        return cls.from_dict(json.loads(text))


def versions(*packages: str) -> dict[str, str | None]:
    """{"python" or package: version, or None if it cannot be imported}.

    The modules themselves say it: the package that holds `tensorflow` may be `tensorflow-cpu`.
    """
    known: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            known[package] = importlib.import_module(package.replace("-", "_")).__version__
        except ImportError:
            known[package] = None
    return known
