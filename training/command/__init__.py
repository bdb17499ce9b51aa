"""The base of every script: options, start and end, signals, and whole files.

Imports no training, no model and no server.
"""
