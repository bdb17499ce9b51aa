"""Imports published Marian models, in either form, as run folders."""


class MarianError(Exception):
    """Why a published model cannot be imported, in one line."""
