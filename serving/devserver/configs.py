"""The text config files: the real field names, and the real server's checks."""

import dataclasses
import os
import socket

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from .errors import failed_precondition, invalid, not_found, unavailable

_Field = descriptor_pb2.FieldDescriptorProto
_BOOL, _STRING = {"type": _Field.TYPE_BOOL}, {"type": _Field.TYPE_STRING}


def _message(name):
    return {"type": _Field.TYPE_MESSAGE, "type_name": name}


_INT64_VALUE = _message(".google.protobuf.Int64Value")
# tensorflow-serving-api does not ship these protos, so their descriptors are built here. They are
# only ever read as text: the numbers of the fields do not matter.
_MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": _INT64_VALUE,
        "batch_timeout_micros": _INT64_VALUE,
        "max_enqueued_batches": _INT64_VALUE,
        "num_batch_threads": _INT64_VALUE,
        "thread_pool_name": _message(".google.protobuf.StringValue"),
        "allowed_batch_sizes": {"type": _Field.TYPE_INT64, "label": _Field.LABEL_REPEATED},
        "pad_variable_length_inputs": _BOOL,
        "enable_large_batch_splitting": _message(".google.protobuf.BoolValue"),
        "max_execution_batch_size": _INT64_VALUE,
    },
    "SSLConfig": {
        "server_key": _STRING,
        "server_cert": _STRING,
        "custom_ca": _STRING,
        "client_verify": _BOOL,
    },
    "MonitoringConfig": {"prometheus_config": _message(".tensorflow.serving.PrometheusConfig")},
    "PrometheusConfig": {"enable": _BOOL, "path": _STRING},
}


def _build():
    """Message classes for _MESSAGES, in a pool of their own."""
    wrappers = wrappers_pb2.DESCRIPTOR
    file = descriptor_pb2.FileDescriptorProto(
        name="configs.proto", package="tensorflow.serving", syntax="proto3"
    )
    file.dependency.append(wrappers.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), start=1):
            message.field.add(name=field, number=number, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers.serialized_pb)
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"tensorflow.serving.{name}") for name in _MESSAGES)
    return map(message_factory.GetMessageClass, found)


BatchingParameters, SSLConfig, MonitoringConfig, _ = _build()
ModelServerConfig = model_server_config_pb2.ModelServerConfig


def read(path, cls):
    """Parses a text-format proto file.

    Args:
        path: the file.
        cls: the message class.

    Returns:
        The message.

    Raises:
        ServingError: NOT_FOUND or INVALID_ARGUMENT, naming the file and the place in it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise not_found(f"{path}; {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise invalid(f"Invalid protobuf file: '{path}': {error}") from error
    try:
        return text_format.Parse(text, cls())
    except text_format.ParseError as error:
        raise invalid(
            f"Error parsing text-format {cls.DESCRIPTOR.full_name}: {error}; Invalid protobuf "
            f"file: '{path}'"
        ) from error


def single_model(name, base_path):
    """The config that --model_name and --model_base_path stand for."""
    config = ModelServerConfig()
    model = config.model_config_list.config.add(name=name, model_platform="tensorflow")
    model.base_path = os.path.abspath(base_path)
    return config


def validate_models(config):
    """Raises a ServingError where the real server does not accept a ModelServerConfig."""
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
            raise invalid(
                f"Expected model {model.name} to have an absolute path or URI; got "
                f"base_path()={model.base_path}"
            )
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
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError as error:
        raise not_found(f"Could not find base path {base_path}: {error.strerror}") from error
    numbers = {int(n): os.path.join(base_path, n) for n in names if n.isdecimal() and n.isascii()}
    return {number: path for number, path in numbers.items() if number < 1 << 63}


def chosen(found, policy):
    """The versions of `found` that a ServableVersionPolicy wants served."""
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return found
    if kind == "specific":
        return {n: found[n] for n in policy.specific.versions if n in found}
    return {n: found[n] for n in sorted(found)[-(policy.latest.num_versions or 1) :]}


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """How one model is batched; see TensorFlow Serving's BatchingParameters."""

    max_size: int = 1000
    execution_size: int = 1000
    timeout: float = 0.0  # seconds
    max_enqueued: int = 10
    threads: int = os.cpu_count() or 1
    allowed: tuple = ()
    splitting: bool = False
    pad_inputs: bool = False

    def padded(self, size):
        """The smallest allowed batch size that holds `size` rows."""
        return next((allowed for allowed in self.allowed if allowed >= size), size)


def batch_settings(parameters):
    """Reads BatchingParameters.

    Raises:
        ServingError: INVALID_ARGUMENT, values that the real server refuses.
    """

    def value(name, default):
        return getattr(parameters, name).value if parameters.HasField(name) else default

    max_size = value("max_batch_size", 1000)
    splitting = value("enable_large_batch_splitting", False)
    settings = BatchSettings(
        max_size=max_size,
        execution_size=value("max_execution_batch_size", max_size) if splitting else max_size,
        timeout=value("batch_timeout_micros", 0) / 1e6,
        max_enqueued=value("max_enqueued_batches", 10),
        threads=value("num_batch_threads", BatchSettings.threads),
        allowed=tuple(parameters.allowed_batch_sizes),
        splitting=splitting,
        pad_inputs=parameters.pad_variable_length_inputs,
    )
    _check_batching(settings)
    return settings


def _check_batching(settings):
    for name in ("max_size", "execution_size", "max_enqueued", "threads"):
        if getattr(settings, name) < 1:
            raise invalid(f"{name} must be positive; was {getattr(settings, name)}")
    if settings.timeout < 0:
        micros = round(settings.timeout * 1e6)
        raise invalid(f"batch_timeout_micros must be non-negative; was {micros}")
    if settings.execution_size > settings.max_size:
        raise invalid(
            "When enable_large_batch_splitting is true, input_batch_size_limit must be greater "
            "than or equal to max_execution_batch_size."
        )
    sizes, most = settings.allowed, settings.execution_size
    if sizes and sizes[-1] != most:
        limit = "max_execution_batch_size" if settings.splitting else "max_batch_size"
        raise invalid(
            f"Last entry in allowed_batch_sizes must match {limit}; last entry was {sizes[-1]}; "
            f"expected {most}"
        )
    if list(sizes) != sorted(set(sizes)) or min(sizes, default=1) < 1:
        raise invalid(f"allowed_batch_sizes entries must be in increasing order; were {sizes}")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the config files named on the command line say."""

    models: object  # ModelServerConfig
    batching: object  # BatchSettings or None
    monitoring: object  # MonitoringConfig or None
    ssl: object  # SSLConfig or None


def _check_there(models):
    """The real server waits for ever for a model that is not there; this one says so at once."""
    for model in models.model_config_list.config:
        if not chosen(versions_on_disk(model.base_path), model.model_version_policy):
            raise not_found(
                f"No versions of servable {model.name} found under base path {model.base_path}. "
                f"Did you forget to name your leaf directory as a number (eg. '/1/')?"
            )


def check_port(host, port):
    """Raises UNAVAILABLE if a port cannot be bound, before models are loaded in vain."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error


def settings(options):
    """Reads every config file that the flags name.

    Args:
        options: from `flags.parse`.

    Returns:
        Settings.

    Raises:
        ServingError: a file is missing or says what cannot be; a port or a model is not there.
    """

    def file(flag, cls):
        path = getattr(options, flag)
        return read(path, cls) if path else None

    for port in filter(None, (options.port, options.rest_api_port)):
        check_port(options.host, port)
    models = file("model_config_file", ModelServerConfig)
    if models is None:
        models = single_model(options.model_name, options.model_base_path)
    validate_models(models)
    _check_there(models)
    if not options.enable_batching:
        for flag in ("batching_parameters_file", "enable_per_model_batching_parameters"):
            if getattr(options, flag):
                raise invalid(f"--{flag} is set without setting --enable_batching to true.")
    parameters = file("batching_parameters_file", BatchingParameters) or BatchingParameters()
    return Settings(
        models=models,
        batching=batch_settings(parameters) if options.enable_batching else None,
        monitoring=file("monitoring_config_file", MonitoringConfig),
        ssl=file("ssl_config_file", SSLConfig),
    )
