"""Word lists are written as text."""


def words(text):
    """`one two` -> `("one", "two")`."""
    return tuple(text.split())
