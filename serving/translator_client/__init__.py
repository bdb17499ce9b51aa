"""Ask a translator behind TensorFlow Serving, without TensorFlow: gRPC or REST, sync or async.

>>> from serving.translator_client import TranslatorClient
>>> with TranslatorClient("127.0.0.1:8500", model="translator") as client:
...     client.translate([])  # `client.translate(["bom dia"])` with a server at that address
[]
"""

from serving.translator_client.answers import Explanation, Hypothesis, ReferenceScore, Translation
from serving.translator_client.client import AsyncTranslatorClient, TranslatorClient
from serving.translator_client.connection import TLS, Target
from serving.translator_client.errors import (
    DeadlineExceededError,
    MessageTooLargeError,
    ModelNotFoundError,
    ServingError,
    UnavailableError,
)
from serving.translator_client.retries import Backoff

__all__ = [
    "TLS",
    "AsyncTranslatorClient",
    "Backoff",
    "DeadlineExceededError",
    "Explanation",
    "Hypothesis",
    "MessageTooLargeError",
    "ModelNotFoundError",
    "ReferenceScore",
    "ServingError",
    "Target",
    "Translation",
    "TranslatorClient",
    "UnavailableError",
]
