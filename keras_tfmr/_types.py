"""Names for types that type checkers cannot follow."""

from typing import Any

# A tensor of Keras's backend, or a value that it converts to one: an array, a list.
Tensor = Any

# Tensors nested in tuples, lists and dictionaries.
Nested = Any
