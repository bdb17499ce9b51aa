"""Models of other projects, trained beside ours."""
