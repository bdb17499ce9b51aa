"""A client for text models behind TensorFlow Serving, without TensorFlow: gRPC or REST.

>>> from keras_tfmr.client import TranslatorClient
>>> with TranslatorClient("127.0.0.1:8500", model="translator") as client:
...     client.translate([])  # `client.translate(["bom dia"])` with a server at that address
[]
"""

from keras_tfmr.client.answers import Explanation, Likelihood, Translation
from keras_tfmr.client.client import AsyncTranslatorClient, TranslatorClient
from keras_tfmr.client.connection import TLS, Target
from keras_tfmr.client.errors import (
    DeadlineExceededError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServingError,
    UnavailableError,
)
from keras_tfmr.client.retries import Backoff
from keras_tfmr.client.text_answers import Classification, Completion, Tags

__all__ = [
    "TLS",
    "AsyncTranslatorClient",
    "Backoff",
    "Classification",
    "Completion",
    "DeadlineExceededError",
    "Explanation",
    "Likelihood",
    "MessageTooLargeError",
    "ModelNotFoundError",
    "ServingError",
    "Tags",
    "Target",
    "Translation",
    "TranslatorClient",
    "UnavailableError",
]
