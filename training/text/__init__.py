"""Training of classifiers, taggers and language models, beside the translator's."""
