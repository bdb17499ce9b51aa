"""The development server: `python serving/server.py --model_base_path=DIR --rest_api_port=8501`.

It has TensorFlow Serving's API (gRPC on port 8500, and REST if a port is given) on one machine,
without a container, to try things out and for tests. In production, use TensorFlow Serving itself.
`--help` lists the flags, which are those of tensorflow_model_server.
"""

import contextlib
import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from keras_tfmr.export import compile_cache
from serving.devserver import configs, flags
from serving.devserver.errors import ServingError


def main(arguments=None):
    """Runs the server.

    Args:
        arguments: The command line without the program's name; None for that of the process.

    Returns:
        Exit status: 0 after SIGTERM, 1 if it could not start.
    """
    options = flags.parse(arguments)
    try:
        settings = configs.settings(options)
        with compiled_programs():
            # Imported after the files are checked: TensorFlow takes seconds to import.
            from serving.devserver import app

            app.run(options, settings)
    except (ServingError, OSError, RuntimeError) as error:  # the last two if an address is in use
        print(f"Failed to start server. Error: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def compiled_programs():
    """A folder for what XLA compiles; a temporary one unless `TF_XLA_FLAGS` names another."""
    if compile_cache.folder_in_use():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="xla_cache_") as folder:
        os.environ["TF_XLA_FLAGS"] = compile_cache.flags(folder)
        yield


if __name__ == "__main__":
    sys.exit(main())
