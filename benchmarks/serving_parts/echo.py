"""A gRPC method that sends its request back, to time the transport alone.

python benchmarks/serving_parts/echo.py PORT
"""

import contextlib
import pathlib
import subprocess
import sys

import grpc
import uvloop

METHOD = "/benchmark.Echo/Echo"


async def answer(request, context):
    return request


async def serve(port):
    """Serves as the development server does, on an event loop."""
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answer)  # without a serialiser: bytes
    _, service, method = METHOD.split("/")
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {method: handler})]
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


@contextlib.contextmanager
def running(port):
    """Runs the server in its own process; yields a function that sends it bytes."""
    process = subprocess.Popen([sys.executable, str(pathlib.Path(__file__)), str(port)])
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(60)
            yield channel.unary_unary(METHOD)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
