"""Errors of presets and exports, whose messages are written for users."""


class PresetError(ValueError):
    """A preset cannot be found, read or written."""


class ExportError(RuntimeError):
    """A model cannot be exported, or TensorFlow Serving would not serve the export correctly."""
