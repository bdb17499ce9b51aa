"""What every script here stands on: its options, its beginning and end, and what it writes.

Words and signals enter; options, an exit status and whole files leave. Knows no training, no model
and no server.
"""
