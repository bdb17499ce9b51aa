"""Imports published Marian models, in either form, as run folders."""
