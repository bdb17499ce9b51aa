"""Processes that end with the one that started them, however that ends: nothing outlives a SIGKILL.

The system closes this end of a pipe when this process ends, and the other process waits for that.
As a script, this file is what the other process runs, and imports nothing of Keras or TensorFlow:

    python _tied.py DESCRIPTOR SCRIPT ARGUMENT...
"""

import os
import runpy
import sys
import threading


class Tie:
    """What another process ends with: this one, or `close`.

    Attributes:
        watched: The descriptor to pass to it, as in `Popen(tie.command(...), pass_fds=[watched])`.
    """

    def __init__(self) -> None:
        self.watched, self._alive = os.pipe()

    def command(self, script: str | os.PathLike[str], *arguments: str) -> list[str]:
        """The command that runs a script of Python as the other process."""
        return [sys.executable, __file__, str(self.watched), os.fspath(script), *arguments]

    def close(self) -> None:
        """Ends the other process, within an instant."""
        os.close(self.watched)
        os.close(self._alive)


def main() -> None:
    """Runs the script, in the process that is tied."""
    watched, *sys.argv = sys.argv[1:]
    del sys.path[0]  # the folder of this file

    def end_with_parent():
        os.read(int(watched), 1)  # until the other end is closed
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
