"""Text in a graph, before and after a model: tokens, sentences, slots, terms.

Takes tensors of strings; returns ids and their strings, pieces and the text between them. It must
know neither the models nor their callers.
"""
