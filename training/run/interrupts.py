"""Signals that ask the process to stop."""

import contextlib
import signal


class Interrupts:
    """Remembers that a signal asked the process to stop.

    During training, the first Ctrl-C lets the current update finish, so that a checkpoint can be
    written. The second one, and any at another time, ends the process at once.
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
        """A context in which the first signal is only remembered."""
        self._install()  # again, because TensorFlow's workers have installed their own handlers
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
