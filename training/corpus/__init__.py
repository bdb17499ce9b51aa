"""The data pipeline: text is read, cleaned, encoded into files, shuffled and cut into batches."""
