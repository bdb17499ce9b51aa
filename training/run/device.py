"""What depends on the device of a run: its precision, and on JAX its compiled programs.

XLA compiles a program for each shape of a batch, which takes it seconds to minutes; TensorFlow
runs any shape. So on JAX batches have few shapes, their programs are made before the clock of
`--minutes` starts, and the next start finds them in a folder: one compiled anew may also round in
another way, and a resumed run would not be the same bit for bit.
"""

import contextlib
import os
import time
from pathlib import Path

import keras
import numpy as np

from training.command.disk import RunError
from training.corpus.batches import compiles_by_shape
from training.run.checkpoints import state_of

TENSOR_CORES = 8.0  # the compute capability of the first GPUs with bfloat16


def prepare_backend():
    """Leaves the GPUs to JAX, and keeps what it compiles in the user's folder.

    TensorFlow only makes the batches then, and would take a GPU's memory for itself. The folder is
    `~/.keras/compiled`, or where KERAS_HOME or JAX_COMPILATION_CACHE_DIR says.
    """
    if not compiles_by_shape():
        return
    import jax
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
        jax.config.update("jax_compilation_cache_dir", str(Path(home, "compiled")))


def default_precision():
    """mixed_bfloat16 where the GPU, TPU or processor has bfloat16, else float32."""
    capabilities = _capabilities()
    if not capabilities:
        return best_precision()
    return "mixed_bfloat16" if min(capabilities) >= TENSOR_CORES else "float32"


def _capabilities():
    """The compute capability of each GPU, such as 8.9, or infinity for a TPU; none of a CPU."""
    if keras.backend.backend() == "jax":
        import jax

        devices = [device for device in jax.local_devices() if device.platform != "cpu"]
        return [float(getattr(device, "compute_capability", np.inf)) for device in devices]
    import tensorflow as tf

    gpus = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [float("{}.{}".format(*gpu.get("compute_capability", (0, 0)))) for gpu in gpus]


def best_precision():
    """mixed_bfloat16 if the processor has bfloat16 instructions.

    With avx512_bf16, a step of `tutorial` then takes 17 % less time, one of `small` 20 %, one of
    `base` 40 %: `benchmarks/train_step.py`.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return "mixed_bfloat16" if {"avx512_bf16", "amx_bf16"} & {*flags} else "float32"


def compile_ahead(model, batches, count, evaluator):
    """Compiles the update for each shape of a batch, and the validation; changes no variable.

    Args:
        model: The compiled model.
        batches: A dataset of a batch of each shape, as `fit` reads it.
        count: The number of them.
        evaluator: The `Evaluator`.

    Returns:
        The seconds that this took; 0.0 where nothing is compiled by shape.
    """
    if not compiles_by_shape():
        return 0.0
    began, variables = time.monotonic(), state_of(model)
    before = {name: np.array(variable) for name, variable in variables.items()}
    model.fit(batches, steps_per_epoch=count, verbose=0, shuffle=False)
    for name, variable in variables.items():
        variable.assign(before[name])
    evaluator.function(evaluator.batches[0])
    return time.monotonic() - began


@contextlib.contextmanager
def memory_explained(settings):
    """A context in which a device without enough memory is an error that says what to lower."""
    try:
        yield
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "ResourceExhausted" not in repr(type(error)):
            raise
        tokens, batches = settings.tokens_per_batch, settings.gradient_accumulation_steps
        raise RunError(
            f"The device has too little memory for batches of {tokens:,} tokens. With "
            f"--tokens_per_batch {tokens // 2} --gradient_accumulation_steps {2 * batches} the "
            f"updates are of as many tokens; give --overwrite, or another --output"
        ) from error
