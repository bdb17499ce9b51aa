"""Ends a process that waits for another one for too long."""

import os
import sys
import threading
import time


class Watchdog:
    """A context that may last so many seconds; after that the process ends with status 1.

    What it guards hangs in a call that Python cannot interrupt, so that no exception would help.

    Args:
        seconds: That a block may last.
        exit: Called with 1 when one has lasted longer.
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
                    "(--worker_timeout): start all of them again, and the run resumes from its "
                    "last checkpoint",
                    file=sys.stderr, flush=True,
                )  # fmt: skip
                self._exit(1)
                return
