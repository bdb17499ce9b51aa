"""Mutants of Python files, and why some of them survive."""
