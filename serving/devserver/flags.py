"""The command line: tensorflow_model_server's flags, and a few of our own."""

import argparse
import os

# The real server's other flags: accepted and ignored, so that one command line works for both.
_IGNORED = """
num_unload_threads flush_filesystem_caches use_alts_credentials platform_config_file
per_process_gpu_memory_fraction grpc_channel_arguments rest_api_num_threads
enable_signature_method_name_check enable_profiler thread_pool_factory_config_file
enable_serialization_as_tensor_content mixed_precision skip_initialize_tpu prefer_tflite_model
num_tflite_interpreters_per_pool num_tflite_pools remote_predict_request_options
tensorflow_session_config_file
"""
IGNORED = _IGNORED.split()

# Name: (default, help); the default's type is the flag's.
FLAGS = {
    "port": (8500, "gRPC port; 0 for none"),
    "grpc_socket_path": ("", "UNIX socket on which to listen for gRPC too"),
    "rest_api_port": (0, "HTTP port; 0 for none"),
    "host": (
        "127.0.0.1",
        "address to bind; 0.0.0.0 opens the server to the network (only this server)",
    ),
    "model_name": ("default", "name of the model"),
    "model_base_path": ("", "directory of the model's version directories"),
    "model_config_file": (
        "",
        "text file of a ModelServerConfig: several models, version policies, labels",
    ),
    "model_config_file_poll_wait_seconds": (
        0,
        "seconds between two readings of the config file; 0 to read it once",
    ),
    "file_system_poll_wait_seconds": (
        1,
        "seconds between two searches for new versions; 0 or less for one search",
    ),
    "allow_version_labels_for_unavailable_models": (
        False,
        "accept a new label before its version is loaded",
    ),
    "force_allow_any_version_labels_for_unavailable_models": (
        False,
        "accept any label, also one that moves, before its version is loaded",
    ),
    "saved_model_tags": ("serve", "comma-separated tags of the meta graph"),
    "enable_model_warmup": (True, "replay a version's warm-up file before serving it"),
    "num_request_iterations_for_warmup": (1, "number of times to replay each warm-up record"),
    "max_num_load_retries": (5, "number of further attempts to load a version that fails"),
    "load_retry_interval_micros": (
        1_000_000,
        "microseconds between those attempts; the real server waits a minute",
    ),
    "num_load_threads": (0, "threads that load models; 0 for one"),
    "enable_batching": (False, "batch requests together"),
    "batching_parameters_file": ("", "text file of BatchingParameters"),
    "enable_per_model_batching_parameters": (False, "use each version's batching_params.pbtxt"),
    "tensorflow_session_parallelism": (
        0,
        "threads within and between operations; 0 to choose automatically",
    ),
    "tensorflow_intra_op_parallelism": (
        0,
        "threads within an operation; 0 to choose automatically",
    ),
    "tensorflow_inter_op_parallelism": (
        0,
        "threads between operations; 0 to choose automatically",
    ),
    "xla_cpu_compilation_enabled": (False, "allow XLA on CPUs"),
    "xla_gpu_compilation_enabled": (False, "allow XLA on GPUs"),
    "grpc_max_threads": (4 * (os.cpu_count() or 1), "maximum unbatched runs at the same time"),
    "enable_grpc_healthcheck_service": (False, "serve grpc.health.v1"),
    "rest_api_timeout_in_ms": (30000, "time limit of a REST call in milliseconds"),
    "rest_api_enable_cors_support": (False, "send CORS headers"),
    "monitoring_config_file": ("", "text file of a MonitoringConfig"),
    "ssl_config_file": ("", "text file of an SSLConfig that holds the PEM texts; gRPC only"),
    "allow_remote_reload": (
        False,
        "let other hosts send HandleReloadConfigRequest (only this server)",
    ),
    "max_request_bytes": (
        1 << 26,
        "largest request, gRPC or REST; 0 for no limit (only this server)",
    ),
    "shutdown_grace_seconds": (
        30,
        "seconds for running requests to finish after SIGTERM (only this server)",
    ),
}


def boolean(text):
    if text.lower() in ("true", "1", "t", "yes"):
        return True
    if text.lower() in ("false", "0", "f", "no"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false. Received: {text!r}")


def parse(arguments=None):
    """Parses `--flag=value` (and `--flag` for switches).

    Returns:
        argparse.Namespace; `ignored` lists the given flags that have no effect here.
    """
    parser = argparse.ArgumentParser(
        prog="server.py",
        usage="%(prog)s --model_base_path=DIR [--flag=value ...]",
        allow_abbrev=False,
        description="TensorFlow Serving's API on one machine, to try things out and for tests. "
        "In production, use TensorFlow Serving itself.",
    )
    for name, (default, text) in FLAGS.items():
        switch = {"type": boolean, "nargs": "?", "const": True}
        kind = switch if isinstance(default, bool) else {"type": type(default)}
        shown = "" if default == "" else f" (default: {str(default).lower()})"
        parser.add_argument(f"--{name}", default=default, help=text + shown, **kind)
    for name in IGNORED:
        parser.add_argument(f"--{name}", nargs="?", const="true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.model_base_path and not options.model_config_file:
        parser.error("one of --model_base_path and --model_config_file is required")
    if options.port == 0 and options.rest_api_port == 0 and not options.grpc_socket_path:
        parser.error("one of --port, --rest_api_port and --grpc_socket_path is required")
    options.ignored = [name for name in IGNORED if getattr(options, name) is not None]
    return options
