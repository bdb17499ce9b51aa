"""What a served model can be asked: its signatures, how inputs are checked, and what it answers.

Texts enter and answers leave, the same in process and over the wire. Imports neither Keras nor
TensorFlow, because the client must not.
"""
