"""Presets: the folders, archives and repositories that text models are loaded from and saved to."""

from keras_tfmr._files import PresetError

__all__ = ["PresetError"]
