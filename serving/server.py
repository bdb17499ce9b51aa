"""The development server: `python serving/server.py --model_base_path=DIR --rest_api_port=8501`.

It speaks TensorFlow Serving's API (gRPC on port 8500, REST where asked for) on one machine, without
a container, for trying and for tests. Production is TensorFlow Serving itself. `--help` lists the
flags; they are tensorflow_model_server's.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

if __name__ == "__main__":
    from serving.devserver.app import main

    sys.exit(main())
