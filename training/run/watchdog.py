"""Ends a process that has waited too long for another one."""

import os
import sys
import threading
import time


class Watchdog:
    """A context with a time limit; if it takes longer, the process ends with status 1.

    The guarded call hangs where Python cannot interrupt it, so an exception would not help.

    Args:
        seconds: The time limit of a block.
        exit: Called with 1 when a block exceeds it.
    """

    def __init__(self, seconds, exit=os._exit):
        self.seconds = seconds
        self._exit = exit
        self._deadline = None
        threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self):
        self._deadline = time.monotonic() + self.seconds

    def __exit__(self, *_):
        self._deadline = None

    def _watch(self):
        while True:
            time.sleep(min(1.0, self.seconds / 4))
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline:
                print(
                    f"error: no answer from another worker for {self.seconds:g} seconds "
                    "(--worker_timeout): start all workers again, and the run resumes from its "
                    "last checkpoint",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                self._exit(1)
                return
