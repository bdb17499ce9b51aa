"""What both clients ask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Text = str | bytes
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """A signature, its inputs of one value for each text, and how its outputs are read."""

    signature: str
    inputs: dict[str, Any]
    read: Callable[[dict[str, Any]], list[Answer]]

    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return not next(iter(self.inputs.values()))
