"""Signatures of served models, checks of their inputs, and types of their answers.

Texts enter and answers leave, in process and over the wire alike. Imports neither Keras nor
TensorFlow, because the client must not.
"""
