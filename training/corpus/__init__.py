"""Parallel text on its way to batches: read, cleaned, encoded into files, shuffled and cut."""
