"""Presets: the folders and repositories that text models are loaded from and saved to.

Enters: a path or the name of a repository; or a text model. Leaves: a model with its tokenizers and
settings, for the class that asked; or the files of a preset. It must not know the classes of text
models, nor exports for a server.
"""
