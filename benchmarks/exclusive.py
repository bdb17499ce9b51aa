"""Keeps all other work off the processors of a shared machine during a measurement.

The timed processes run at real-time priority. On every processor, a process of a lower real-time
priority spins whenever the timed ones do not use it. So no other work runs in between, not even on
a processor that they leave free. Linux still gives other work a twentieth of the time. Needs the
right to set priorities (root).
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
    """Ends this process when its parent ends, in whatever way, by Linux's PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def schedule(pid):
    """Sets the priority of all threads of a process; threads that it starts later inherit it."""
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(TIMED))
