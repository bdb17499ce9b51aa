"""Presets: the folders, archives and repositories that text models are loaded from and saved to."""


class PresetError(ValueError):
    """A preset cannot be found, read or written; the message is a line for users."""
