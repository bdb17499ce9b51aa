"""Models that take strings and return strings: tokenizers, translators, classifiers and others."""
