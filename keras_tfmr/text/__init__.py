"""Models that take strings and return strings: tokenisers, translators, classifiers and others."""
