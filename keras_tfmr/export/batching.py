"""Batching parameters of an export for TensorFlow Serving: a file in the version's folder.

A server with `--enable_batching` and `--enable_per_model_batching_parameters` reads it. The number
of threads is the server's own: it stands in its `--batching_parameters_file`.
"""

import pathlib

FILE = "batching_params.pbtxt"
MAX_BATCH_SIZE = (
    64  # texts in a request, and in a batch: more are hardly faster, and answered later
)

# No enable_large_batch_splitting: TensorFlow Serving joins the answers to the parts of a request
# without comparing their shapes. Those of `explain` and `translate_document` are as long as the
# longest of their batch, so that a longer second part ends the server's process.
# No allowed_batch_sizes: they pad a batch with copies of a row, and the exports take any size.
_PARAMETERS = f"""\
# BatchingParameters: how sentences of different requests are translated together.

# The most texts of a batch. A request with more is refused.
# Never set enable_large_batch_splitting: requests of explain or translate_document could end the
# server. Never set pad_variable_length_inputs: one request of two dimensions could crash it.
max_batch_size {{ value: {MAX_BATCH_SIZE} }}

# A batch that is not full waits this long for other requests; an answer takes much longer.
batch_timeout_micros {{ value: 2000 }}

# With a full queue, requests get UNAVAILABLE at once instead of waiting past their deadline.
max_enqueued_batches {{ value: 64 }}
"""


def write(path: pathlib.Path) -> None:
    """Writes the file into a version's folder."""
    (path / FILE).write_text(_PARAMETERS, encoding="utf-8")
