"""A run while it lasts and what it leaves: its folder, length, checkpoints, scores and report.

A model in training enters; files that can be resumed, read and exported leave. Does not know where
the data come from.
"""
