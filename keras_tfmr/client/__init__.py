"""A client for text models behind TensorFlow Serving, without TensorFlow: gRPC or REST.

>>> from keras_tfmr.client import ServingClient
>>> with ServingClient("127.0.0.1:8500", model="translator") as client:
...     client.translate([])  # `client.translate(["bom dia"])` with a server at that address
[]
"""

from keras_tfmr.client.client import AsyncServingClient, ServingClient
from keras_tfmr.client.connection import (
    TLS,
    DeadlineExceededError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServingError,
    Target,
    UnavailableError,
)
from keras_tfmr.signatures.answers import (
    Classification,
    Completion,
    Document,
    Explanation,
    Likelihood,
    Tags,
    Translation,
)

__all__ = [
    "TLS",
    "AsyncServingClient",
    "Classification",
    "Completion",
    "DeadlineExceededError",
    "Document",
    "Explanation",
    "Likelihood",
    "MessageTooLargeError",
    "ModelNotFoundError",
    "ServingClient",
    "ServingError",
    "Tags",
    "Target",
    "Translation",
    "UnavailableError",
]


def __dir__():
    return __all__
