"""Signals that ask the process to stop."""

import contextlib
import signal


class Interrupts:
    """Remembers that the user (or the system) asked the process to stop.

    While batches are trained, the first Ctrl-C lets the update under way end, so that a checkpoint
    can be written; the second one, and any at another time, ends the process at once.
    """

    def __init__(self):
        self.received = None
        self._waits = False

    def __enter__(self):
        self.previous = self._install()
        return self

    def _install(self):
        numbers = (signal.SIGINT, signal.SIGTERM)
        return {number: signal.signal(number, self._receive) for number in numbers}

    def __exit__(self, *_):
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def waiting(self):
        """Inside, the first signal is only remembered."""
        self._install()  # TensorFlow's workers have put a handler of their own in the place
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _receive(self, number, frame):
        first, self.received = self.received is None, number
        if not (first and self._waits):
            raise KeyboardInterrupt
        print("\nStopping after this update; press Ctrl-C again to stop at once.", flush=True)
