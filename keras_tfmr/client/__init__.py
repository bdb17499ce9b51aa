"""A client of text models behind TensorFlow Serving, which needs neither TensorFlow nor Keras.

`ServingClient` takes lists of texts and returns answers, over gRPC.
"""

from keras_tfmr.client.client import ServingClient
from keras_tfmr.client.errors import (
    DeadlineExceededError,
    ModelNotFoundError,
    ServingError,
    UnavailableError,
)
from keras_tfmr.signatures.answers import (
    Classification,
    Completion,
    Document,
    Explanation,
    Likelihood,
    Translation,
)

__all__ = [
    "Classification",
    "Completion",
    "DeadlineExceededError",
    "Document",
    "Explanation",
    "Likelihood",
    "ModelNotFoundError",
    "ServingClient",
    "ServingError",
    "Translation",
    "UnavailableError",
]
