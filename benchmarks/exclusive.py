"""Keeps everything else off the processors while something is timed: for a machine that is shared.

What is timed runs at real-time priority. On every processor a process of lower real-time priority
spins whenever it does not, so that nobody else's work comes between, not even on the processor
that it leaves free. Linux still gives others a twentieth of the time. Needs the right to set
priorities (root).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

OWN, TIMED, SPINNING = 30, 20, 10  # real-time priorities
SPIN = "while True: pass"


class Exclusive:
    """Spinning processes, stopped until `timing`."""

    def __init__(self):
        self.spinners = []
        for processor in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-S", "-c", SPIN]
            spinner = subprocess.Popen(command, preexec_fn=die_with_parent)
            spinner.send_signal(signal.SIGSTOP)
            os.sched_setaffinity(spinner.pid, {processor})
            os.sched_setscheduler(spinner.pid, os.SCHED_FIFO, os.sched_param(SPINNING))
            self.spinners.append(spinner)

    @contextlib.contextmanager
    def timing(self, pids, spin=True):
        """From here on the processes with these ids go before all others, and so do those started
        meanwhile; while it lasts, with `spin`, the others do not run at all."""
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(OWN))
        try:
            for pid in pids:
                schedule(pid)
            if spin:
                self.signal(signal.SIGCONT)
            yield
        finally:
            self.signal(signal.SIGSTOP)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    def signal(self, number):
        for spinner in self.spinners:
            spinner.send_signal(number)

    def close(self):
        for spinner in self.spinners:
            spinner.kill()
            spinner.wait()


def die_with_parent():
    """However the parent ends: Linux's PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def schedule(pid):
    """All threads of a process; those that it starts later inherit it."""
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(TIMED))
