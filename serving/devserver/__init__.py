"""The development server: `versions` loads the model, `grpc_api` and `rest_api` ask it."""
