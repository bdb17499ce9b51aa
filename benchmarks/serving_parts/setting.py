"""What the parts share: the server's settings, the texts, and the export in this process."""

import pathlib
import time

import numpy as np
import tensorflow_text  # noqa: F401
from server_process import ServerProcess
from tensorflow.core.protobuf import config_pb2

from serving.devserver.servable import Servable

CLIENTS = 16
CAP = 16  # rows of a batch, on the server and in process
# Two batches at a time, each on one core. If every operation asked for both cores, they would
# compete for them.
BATCH_THREADS = 2
INTRA_OP, INTER_OP = 1, 2
# The time in which the clients of the last batch read their answers and ask again. If the next one
# started without them, every batch would be half full.
TIMEOUT_MS = 10
# No allowed_batch_sizes: a graph that is not compiled runs any size; padding is wasted work.
BATCHING = f"""
max_batch_size {{ value: {CAP} }}
batch_timeout_micros {{ value: {TIMEOUT_MS * 1000} }}
num_batch_threads {{ value: {BATCH_THREADS} }}
max_enqueued_batches {{ value: 64 }}
"""
SUBJECTS = ("Eu", "A minha irmã", "O professor", "Nós", "Os vizinhos", "A Maria", "Ele", "Vocês")
ACTIONS = (
    "gosto de café.",
    "comprou um livro novo ontem.",
    "não sei onde fica a estação.",
    "vamos ao mercado amanhã de manhã, se não chover.",
    "está a dormir.",
    "quer falar consigo?",
    "perdeu o comboio das oito porque o despertador não tocou.",
    "tem três gatos e um cão.",
)
TEXTS = [f"{subject} {action}".encode() for subject in SUBJECTS for action in ACTIONS]


class Session:
    """The export in this process, with which the server is compared."""

    def __init__(self, path, intra_op=0, inter_op=0):
        config = config_pb2.ConfigProto(
            intra_op_parallelism_threads=intra_op, inter_op_parallelism_threads=inter_op
        )
        self._servable = Servable("translator", 0, str(path), session_config=config)

    def run(self, signature, **inputs):
        """Outputs by name; inputs are lists of bytes."""
        definition = self._servable.signatures[signature]
        feeds = {
            definition.inputs[name].name: np.array(values, object)
            for name, values in inputs.items()
        }
        names = sorted(definition.outputs)
        values = self._servable.run(feeds, [definition.outputs[name].name for name in names])
        return dict(zip(names, values, strict=True))


def serve(folder, base_path, *flags, batching=True):
    """A running server of `base_path`, batched unless told otherwise."""
    if batching:
        file = pathlib.Path(folder) / "batching.config"
        file.write_text(BATCHING)
        flags = (*flags, "--enable_batching", f"--batching_parameters_file={file}")
    return ServerProcess(
        folder,
        "--model_name=translator",
        f"--model_base_path={base_path}",
        f"--tensorflow_intra_op_parallelism={INTRA_OP}",
        f"--tensorflow_inter_op_parallelism={INTER_OP}",
        *flags,
        wait=200,
    )


def newest(export):
    """Paths of the versions, the newest last."""
    paths = [path for path in pathlib.Path(export).iterdir() if path.name.isdecimal()]
    return sorted(paths, key=lambda path: int(path.name))


def seconds_of(function):
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
