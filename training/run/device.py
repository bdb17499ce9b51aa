"""The device of a run: its precision, its memory, and on JAX the compiled programs.

XLA compiles a program for each shape of a batch, in seconds to minutes; TensorFlow runs any shape.
So on JAX batches have few shapes, and their programs are compiled before the clock of `--minutes`
starts. The next start finds them in a folder: compiled again, a program may round differently, and
a resumed run would not be bit-identical.
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
    """On JAX, leaves it the GPUs, whose memory TensorFlow would take, and keeps its programs.

    The folder is `~/.keras/compiled`, or as KERAS_HOME or JAX_COMPILATION_CACHE_DIR says.
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
    """mixed_bfloat16 where all GPUs and TPUs, or else the processor, have bfloat16; else float32.

    With avx512_bf16, a step of `tutorial` then takes 17 % less time, one of `small` 20 %, one of
    `base` 40 %: `benchmarks/train_step.py`.
    """
    if capabilities := _capabilities():
        has_bfloat16 = min(capabilities) >= TENSOR_CORES
    else:
        has_bfloat16 = {"avx512_bf16", "amx_bf16"} & _processor_flags()
    return "mixed_bfloat16" if has_bfloat16 else "float32"


def _capabilities():
    """The compute capability of each GPU, such as 8.9, or infinity for a TPU; none of a CPU."""
    if keras.backend.backend() == "jax":
        import jax

        devices = [device for device in jax.local_devices() if device.platform != "cpu"]
        return [float(getattr(device, "compute_capability", np.inf)) for device in devices]
    import tensorflow as tf

    gpus = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return [float("{}.{}".format(*gpu.get("compute_capability", (0, 0)))) for gpu in gpus]


def _processor_flags():
    """The instruction sets of the processor, as Linux names them; none elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return {*line.split()}
    return set()


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
    """A context in which a lack of memory is an error that names the setting to lower."""
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
