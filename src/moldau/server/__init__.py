"""Connections and requests: from the accepted socket to the handler's answer, and back.

It may import `telemetry`, `runtime` and what `runtime` may import, except `raft` and `client`. Begin with `listener`,
then `socket_connection` (with TLS `tls_connection`), `conversation`, which is the protocol of a connection without a
socket, and `router`. `handlers` has one module for each API.
"""
