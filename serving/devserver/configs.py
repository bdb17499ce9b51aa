"""Reads the text config files, with the real server's field names and checks."""

import dataclasses
import os
import re
import socket
import types

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from .config_pb2 import BatchingParameters, MonitoringConfig, SSLConfig
from .errors import failed_precondition, invalid, not_found, unavailable

ModelServerConfig = model_server_config_pb2.ModelServerConfig


def read(path, cls):
    """Parses a text-format proto file.

    Args:
        path: The file.
        cls: The message class.

    Returns:
        The message.

    Raises:
        ServingError: NOT_FOUND or INVALID_ARGUMENT, naming the file and the place in it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), cls())
    except OSError as error:
        raise not_found(f"{path}; {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise invalid(f"Invalid protobuf file: '{path}': {error}") from error
    except text_format.ParseError as error:
        what = f"Error parsing text-format {cls.DESCRIPTOR.full_name}: {error}"
        raise invalid(f"{what}; Invalid protobuf file: '{path}'") from error


def single_model(options):
    """The config that --model_name and --model_base_path stand for."""
    base_path = os.path.abspath(options.model_base_path)
    model = {"name": options.model_name, "base_path": base_path, "model_platform": "tensorflow"}
    return ModelServerConfig(model_config_list={"config": [model]})


def validate_models(config):
    """Raises a ServingError if the real server would refuse a ModelServerConfig."""
    if config.WhichOneof("config") == "custom_model_config":
        raise failed_precondition(
            "Cannot transition to requested config. It is only legal to transition from one "
            "ModelConfigList to another."
        )
    names = set()
    for model in config.model_config_list.config:
        if model.name in names:
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        names.add(model.name)
        if not os.path.isabs(model.base_path):
            what = f"Expected model {model.name} to have an absolute path or URI"
            raise invalid(f"{what}; got base_path()={model.base_path}")
        if not model.model_platform and not model.model_type:
            raise invalid(
                "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
                "ModelServerConfig::model_platform."
            )
        if model.model_platform not in ("", "tensorflow"):
            raise invalid(f"PlatformConfigMap has no entry for platform {model.model_platform}")


def versions_on_disk(base_path):
    """Version directories under a base path: those whose whole name is a number.

    Raises:
        ServingError: NOT_FOUND, there is no such directory.
    """
    try:
        with os.scandir(base_path) as entries:
            folders = [e for e in entries if e.is_dir() and re.fullmatch("[0-9]+", e.name)]
    except OSError as error:
        raise not_found(f"Could not find base path {base_path}: {error.strerror}") from error
    return {int(e.name): e.path for e in folders if int(e.name) < 1 << 63}


def chosen(found, policy):
    """The versions of `found` that a ServableVersionPolicy selects."""
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return found
    if kind == "specific":
        return {n: found[n] for n in policy.specific.versions if n in found}
    return {n: found[n] for n in sorted(found)[-(policy.latest.num_versions or 1) :]}


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """How one model is batched. The fields correspond to TensorFlow Serving's BatchingParameters.

    Raises:
        ServingError: INVALID_ARGUMENT, the real server refuses a value.
    """

    max_size: int = 1000
    execution_size: int = 1000
    timeout: float = 0.0  # seconds
    max_enqueued: int = 10
    threads: int = os.cpu_count() or 1
    allowed: tuple = ()
    splitting: bool = False
    pad_inputs: bool = False

    def __post_init__(self):
        for name in ("max_size", "execution_size", "max_enqueued", "threads"):
            if getattr(self, name) < 1:
                raise invalid(f"{name} must be positive; was {getattr(self, name)}")
        micros = round(self.timeout * 1e6)
        if micros < 0:
            raise invalid(f"batch_timeout_micros must be non-negative; was {micros}")
        if self.execution_size > self.max_size:
            raise invalid(
                "When enable_large_batch_splitting is true, input_batch_size_limit must be greater "
                "than or equal to max_execution_batch_size."
            )
        sizes, most = self.allowed, self.execution_size
        if sizes and sizes[-1] != most:
            limit = "max_execution_batch_size" if self.splitting else "max_batch_size"
            what = f"Last entry in allowed_batch_sizes must match {limit}"
            raise invalid(f"{what}; last entry was {sizes[-1]}; expected {most}")
        if list(sizes) != sorted(set(sizes)) or min(sizes, default=1) < 1:
            raise invalid(f"allowed_batch_sizes entries must be in increasing order; were {sizes}")

    def padded(self, size):
        """The smallest allowed batch size that holds `size` rows."""
        return next((allowed for allowed in self.allowed if allowed >= size), size)


def batch_settings(parameters):
    """Converts a BatchingParameters message to BatchSettings.

    Raises:
        ServingError: INVALID_ARGUMENT, the real server refuses a value.
    """
    # ListFields leaves out the fields that are not set; an explicit 0 is listed, and refused.
    given = {field.name: getattr(value, "value", value) for field, value in parameters.ListFields()}
    max_size = given.get("max_batch_size", BatchSettings.max_size)
    splitting = given.get("enable_large_batch_splitting", False)
    return BatchSettings(
        max_size=max_size,
        execution_size=given.get("max_execution_batch_size", max_size) if splitting else max_size,
        timeout=given.get("batch_timeout_micros", 0) / 1e6,
        max_enqueued=given.get("max_enqueued_batches", BatchSettings.max_enqueued),
        threads=given.get("num_batch_threads", BatchSettings.threads),
        allowed=tuple(parameters.allowed_batch_sizes),
        splitting=splitting,
        pad_inputs=parameters.pad_variable_length_inputs,
    )


def _check_there(models):
    """Raises NOT_FOUND for a model without versions; the real server would wait for one forever."""
    for model in models.model_config_list.config:
        if not chosen(versions_on_disk(model.base_path), model.model_version_policy):
            raise not_found(
                f"No versions of servable {model.name} found under base path {model.base_path}. "
                f"Did you forget to name your leaf directory as a number (eg. '/1/')?"
            )


def check_port(host, port):
    """Raises UNAVAILABLE if a port cannot be bound; called before the models are loaded."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error


def settings(options):
    """Reads every config file that the flags name.

    Args:
        options: From `flags.parse`.

    Returns:
        Namespace of `models` (ModelServerConfig), `batching` (BatchSettings or None), `monitoring`
        (MonitoringConfig or None) and `ssl` (SSLConfig or None).

    Raises:
        ServingError: A file is missing or invalid, a port is in use, or a model has no versions.
    """

    def file(flag, cls):
        path = getattr(options, flag)
        return read(path, cls) if path else None

    for port in filter(None, (options.port, options.rest_api_port)):
        check_port(options.host, port)
    models = file("model_config_file", ModelServerConfig) or single_model(options)
    validate_models(models)
    _check_there(models)
    if not options.enable_batching:
        for flag in ("batching_parameters_file", "enable_per_model_batching_parameters"):
            if getattr(options, flag):
                raise invalid(f"--{flag} is set without setting --enable_batching to true.")
    parameters = file("batching_parameters_file", BatchingParameters) or BatchingParameters()
    return types.SimpleNamespace(
        models=models,
        batching=batch_settings(parameters) if options.enable_batching else None,
        monitoring=file("monitoring_config_file", MonitoringConfig),
        ssl=file("ssl_config_file", SSLConfig),
    )
