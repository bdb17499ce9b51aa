"""What makes a finished model faster: a decoding step with caches, and weights in other precisions.

What is made here from the layers of a model gives the model's own answers. Nothing here trains, and
nothing knows of texts or signatures.
"""
