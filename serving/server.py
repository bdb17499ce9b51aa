"""The development server: `python serving/server.py --model_base_path=DIR --rest_api_port=8501`.

It speaks TensorFlow Serving's API (gRPC on port 8500, REST where asked for) on one machine, without
a container, for trying and for tests. Production is TensorFlow Serving itself. `--help` lists the
flags; they are tensorflow_model_server's.
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
        arguments: the command line without the program's name; None: the process's own.

    Returns:
        exit status: 0 after SIGTERM, 1 if it could not start.
    """
    options = flags.parse(arguments)
    try:
        settings = configs.settings(options)
        with compiled_programs():
            # TensorFlow takes seconds to import: a mistake in the files is told before that.
            from serving.devserver import app

            app.run(options, settings)
    except (ServingError, OSError, RuntimeError) as error:  # the last two: an address is taken
        print(f"Failed to start server. Error: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def compiled_programs():
    """A folder for what XLA compiles, of this process alone unless `TF_XLA_FLAGS` names another."""
    if compile_cache.folder_in_use():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="xla_cache_") as folder:
        os.environ["TF_XLA_FLAGS"] = compile_cache.flags(folder)
        yield


if __name__ == "__main__":
    sys.exit(main())
