"""When to try again."""

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Pauses between attempts, growing, with jitter so that many clients do not come back at once.

    Args:
        attempts: Attempts in all; 1 means no retry.
        first: Seconds before the second attempt.
        factor: What each further pause is multiplied by.
        longest: Seconds that no pause exceeds.

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
