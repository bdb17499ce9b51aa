"""A small server with the part of TensorFlow Serving's API that this project's clients use.

`app` starts it; a request goes from `grpc_api` or `rest_api` through `predict` to a `model`.
"""
