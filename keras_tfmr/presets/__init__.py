"""Presets: the folders, archives and repositories that text models are loaded from and saved to.

Enters: a path or the name of a repository; or a text model. Leaves: a model with its tokenizers and
settings, for the class that asked; or files, ours, Marian's, transformers' and CTranslate2's. It
must not know the classes of text models, nor exports for a server.
"""
