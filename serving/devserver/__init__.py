"""TensorFlow Serving's API on one machine, without a container, for trying and for tests.

Production is the real server; this one answers as it does wherever it answers at all. A request's
way: grpc_api or rest_api → predict (what the signature asks for) → batching (if enabled) →
servable (the session). versions decides which servable that is.
"""
