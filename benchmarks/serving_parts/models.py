"""The small models that the server's tests serve."""

from server_models import request, three_models

__all__ = ["request", "three_models"]
