"""What makes a finished model faster: its weights in other precisions, and steps to decode with.

A finished model enters and one that gives the same answers leaves. Nothing here trains, and
nothing knows of texts or signatures.
"""
