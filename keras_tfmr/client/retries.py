"""When to retry."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Increasing pauses between attempts, with jitter, so that clients do not all retry at once.

    Args:
        attempts: Number of attempts in total; 1 for no retry.
        first: Seconds before the second attempt, before jitter.
        factor: By which each further pause is longer than the one before.
        longest: The longest pause in seconds.

    Raises:
        ValueError: If `attempts` is less than 1.

    >>> len(list(Backoff(attempts=4).pauses()))
    3
    """

    attempts: int = 5
    first: float = 0.1
    factor: float = 2.0
    longest: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1. Received: {self.attempts}")

    def pauses(self) -> Iterator[float]:
        """Yields the seconds to wait before each further attempt: half to all of the step."""
        step = self.first
        for _ in range(self.attempts - 1):
            yield min(step, self.longest) * random.uniform(0.5, 1.0)
            step = min(step * self.factor, self.longest)
