"""Exports as SavedModels for TensorFlow Serving, checked before they appear.

Enters: a text model, and texts like those of real requests. Leaves: the folder of a version, with
its warm-up file, batching parameters and metadata. It must not know the classes of text models, nor
presets: what is written are the signatures that a text model declares.
"""
