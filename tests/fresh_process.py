"""A Python process that has built nothing: loads saved models when asked, and calls them.

Reads one JSON line a request on stdin, {"model": path, "inputs": path of .npz, "outputs": path},
and answers one line: `done`, or what went wrong.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class FreshProcess:
    """The asking side. One process serves many requests: starting it costs seconds."""

    def __init__(self, folder):
        self.folder = folder
        self.process = None

    def outputs(self, path, arrays):
        """Outputs of the model saved at `path`, loaded over there: a list of NumPy arrays."""
        import numpy as np

        inputs, outputs = self.folder / "inputs.npz", self.folder / "outputs.npz"
        np.savez(inputs, *arrays)
        request = {"model": str(path), "inputs": str(inputs), "outputs": str(outputs)}
        answer = self._ask(json.dumps(request))
        assert answer == "done", answer
        with np.load(outputs) as file:
            return [file[name] for name in file.files]

    def _ask(self, line):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=20)


def _serve():
    import gc

    import keras
    import numpy as np

    import keras_tfmr.recurrent  # noqa: F401  registers these layers, and all others

    gc.freeze()  # Keras asks for a collection per quantised weight
    for line in sys.stdin:
        request = json.loads(line)
        try:
            model = keras.models.load_model(request["model"])
            with np.load(request["inputs"]) as file:
                arrays = [file[name] for name in file.files]
            outputs = keras.tree.flatten(model(arrays))
            arrays = [keras.ops.convert_to_numpy(keras.ops.cast(o, "float32")) for o in outputs]
            np.savez(request["outputs"], *arrays)
            answer = "done"
        except Exception as error:  # whatever it is, the asking test shall show it
            answer = f"{type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    _serve()
