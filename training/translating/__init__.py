"""The translation of files: what `training/translate.py` is made of.

Enters: files of lines, paragraphs or pages, and the options of the command line. Leaves: files of
translations. It must not know how a model translates, nor how it was trained.
"""
