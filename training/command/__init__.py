"""The base of every script here: options, start and end, signals, and whole files.

Knows no training, no model and no server.
"""
