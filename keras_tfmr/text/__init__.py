"""Strings: the tokeniser, the graph functions from strings to strings, and the translator."""
