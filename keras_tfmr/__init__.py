"""Transformer layers for Keras 3, and models of text built from them that can be served.

Names of dimensions, in comments and docstrings: batch, beam, rows
(= batch · beam, the beams of a sentence side by side), heads, query, key, length, source,
target, vocab, d_model, dff, key_dim, value_dim, units, n.

Masks are bool, True = valid / may attend. Padding is token ID 0.
"""

import lazy_loader

__version__ = "0.1.0"

# The names of `__init__.pyi`, each imported when it is first used: the client does not import
# Keras, nor do the layers import TensorFlow.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
