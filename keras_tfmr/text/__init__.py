"""What happens to text in a graph, before and after a model: tokens, sentences, slots, terms.

Enters: tensors of strings. Leaves: ids and their strings, pieces and what is between them. It must
not know the models, nor who asks.
"""
