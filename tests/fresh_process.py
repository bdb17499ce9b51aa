"""A Python process that has built nothing: loads saved models when asked, and calls them.

Reads a line for each request on stdin, the paths of a model and of .npz files of its inputs and
outputs; answers one line: `done`, or what went wrong.
"""

import subprocess
import sys


class FreshProcess:
    """The asking side. One process serves many requests: starting it costs seconds."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def outputs(self, path, arrays):
        """Outputs of the model saved at `path`, loaded over there: a list of NumPy arrays."""
        import numpy as np

        inputs, outputs = self.folder / "inputs.npz", self.folder / "outputs.npz"
        np.savez(inputs, *arrays)
        if self.process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.process = subprocess.Popen([sys.executable, __file__], **pipes)
        print(path, inputs, outputs, sep="\t", file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        assert answer == "done", answer
        with np.load(outputs) as file:
            return [file[name] for name in file.files]

    def close(self):
        if self.process is not None:
            self.process.communicate(timeout=20)


def _serve():
    import gc

    import keras
    import numpy as np

    import keras_tfmr.recurrent  # noqa: F401  registers these layers, and all others

    gc.freeze()  # Keras asks for a collection per quantised weight
    for line in sys.stdin:
        path, inputs, outputs = line.rstrip("\n").split("\t")
        try:
            with np.load(inputs) as file:
                found = keras.models.load_model(path)([file[name] for name in file.files])
            found = [keras.ops.cast(output, "float32") for output in keras.tree.flatten(found)]
            np.savez(outputs, *map(keras.ops.convert_to_numpy, found))
            answer = "done"
        except Exception as error:  # whatever it is, the asking test shall show it
            answer = f"{type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    _serve()
