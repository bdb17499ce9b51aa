"""The calls that both clients send."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """A signature, its inputs with one value for each text, and the function that reads outputs."""

    signature: str
    inputs: dict[str, Any]
    read: Callable[[dict[str, Any]], list[Answer]]

    def is_empty(self) -> bool:
        """Whether the call has no texts."""
        return not next(iter(self.inputs.values()))
