"""grpcio's asyncio server, with a fix for a defect that lets any client's request stop it."""

import asyncio
import logging

import grpc
from google.protobuf import message_factory
from grpc._cython import cygrpc


class _Core(cygrpc.AioServer):
    """Answers UNIMPLEMENTED to a method that is not registered, whatever bytes its name has.

    grpcio 1.85 decodes such a name in the loop that takes every call: a `:path` that is not UTF-8
    ends the loop, and with it all connections. Here these calls never reach the loop. In a release
    without the overridden method, this class changes nothing.
    """

    def _make_request_call_future(self, method):
        if method is not None:
            return super()._make_request_call_future(method)
        return asyncio.get_running_loop().create_task(self._refuse_the_unregistered())

    async def _refuse_the_unregistered(self):
        loop, no_methods = asyncio.get_running_loop(), cygrpc._MethodResolver([], {})
        tasks = set()  # the event loop holds them weakly
        while True:  # when the server shuts down, asking for one more call raises
            call = await self._request_call()
            answer = cygrpc._handle_rpc("unknown", no_methods, (), call, loop, False)
            task = loop.create_task(cygrpc._schedule_rpc_coro(answer, call, loop, "unknown"))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


class _ClientsFault(logging.Filter):
    """Drops log records about clients that left before the answer and about bytes in headers.

    grpcio handles both: there is no client to answer, and it reads the bytes as Latin-1.
    """

    def filter(self, record):
        error = record.exc_info[1] if record.exc_info else None
        encoding = str(record.msg).startswith("Invalid encoding on")
        return not (encoding or isinstance(error, cygrpc.ExecuteBatchError))


def server(interceptors, options):
    """Creates a grpc.aio.Server with the fix; takes the arguments of `grpc.aio.server`."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(_ClientsFault())
    plain, cygrpc.AioServer = cygrpc.AioServer, _Core
    try:
        return grpc.aio.server(interceptors=interceptors, options=options)
    finally:
        cygrpc.AioServer = plain


def register(server, service, servicer):
    """Adds a service to a server that has not been started.

    Args:
        server: grpc.aio.Server.
        service: ServiceDescriptor; every method has one request and one response.
        servicer: Object with a coroutine `METHOD(request, context)` for every method.
    """
    handlers = {}
    for method in service.methods:
        request, response = map(
            message_factory.GetMessageClass, (method.input_type, method.output_type)
        )
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(
            getattr(servicer, method.name), request.FromString, response.SerializeToString
        )
    # Older releases of grpcio look up the generic handlers, `_Core` the registered ones.
    generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
    server.add_generic_rpc_handlers((generic,))
    server.add_registered_method_handlers(service.full_name, handlers)
