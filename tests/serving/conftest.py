"""One export and one server for all tests of this folder and all workers of pytest-xdist."""

import fcntl
import json
import os
import signal
import time
from contextlib import contextmanager

import pytest
import server_models
from server_process import Server, ServerProcess


@contextmanager
def locked(folder):
    """A context that only one worker is in at a time."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def toys(once):
    """The folder of the version of `server_models.Toys`."""
    return once("toys", server_models.save) / "1"


@pytest.fixture(scope="session")
def server(shared, toys):
    """A server of `Toys`; the first worker starts it, the last one ends it."""
    file = shared / "server.json"
    with locked(shared):
        if not file.exists():
            flags = ["--max_queue=20", "--threads=2", "--rest_api_timeout_in_ms=3000"]
            flags.append(f"--max_request_bytes={1 << 22}")
            started = ServerProcess(shared, f"--model_base_path={toys.parent}", *flags)
            found = {"ports": [started.port, started.rest_port], "pid": started.process.pid}
            file.write_text(json.dumps(found | {"users": 0}))
        found = json.loads(file.read_text())
        file.write_text(json.dumps(found | {"users": found["users"] + 1}))
    server = Server(*found["ports"])
    yield server
    server.channel.close()
    with locked(shared):
        found = json.loads(file.read_text())
        file.write_text(json.dumps(found | {"users": found["users"] - 1}))
        if found["users"] == 1:
            file.unlink()
            os.kill(found["pid"], signal.SIGTERM)
            for _ in range(200):  # the process may be another worker's child
                if status_line(found["pid"]) in ("", "Z"):
                    return
                time.sleep(0.1)
            raise AssertionError("the server did not end after SIGTERM")


def status_line(pid):
    """The state letter of a process; "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
