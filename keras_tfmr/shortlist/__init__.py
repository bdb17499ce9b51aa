"""Shortlists: the few target ids that a translation may have, by the ids of its source.

Most of a decoding step of a large vocabulary is the product that makes the logits. With a
shortlist, a search computes those of a few hundred candidates. `model_1` finds which target ids go
with a source id, `table` holds them, and `search` is the search among them, which needs TensorFlow.
"""

from keras_tfmr.shortlist.table import Shortlist

__all__ = ["Shortlist"]
