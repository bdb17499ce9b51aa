"""Names for types that no checker can see through."""

from typing import Any

# A tensor of whichever backend Keras runs on, or what that backend makes one of: arrays, lists.
Tensor = Any

# Tensors nested in tuples, lists and dictionaries.
Nested = Any
