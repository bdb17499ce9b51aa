"""TensorFlow Serving's API on one machine, without a container, to try things out and for tests.

In production, use TensorFlow Serving itself ("the real server"). This server gives the same answers
to the calls that it implements. A request passes through grpc_api or rest_api, then predict (checks
it against the signature), batching (if enabled) and servable (runs the session). `versions` decides
which servable answers.
"""
