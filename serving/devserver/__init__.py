"""A small server with the part of TensorFlow Serving's API that this project's clients use.

`versions` watches the model's folder, `model` loads and runs one version, `job_queue` queues its
requests, `predict` checks them, `grpc_api` and `rest_api` speak the two protocols, and `app` starts
and stops everything.
"""
