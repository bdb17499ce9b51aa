"""Why mutants live that live."""

REASONS = {}
