"""A decoding step with caches, made of the weights of a model's layers as they are.

It gives the model's own answers, of a finished model and of one in training. Nothing here trains,
and nothing knows of texts or signatures.
"""
