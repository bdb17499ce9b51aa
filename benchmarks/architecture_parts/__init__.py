"""The parts of the comparison of architectures: each measures one thing and describes it."""
