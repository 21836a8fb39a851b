"""HTTP for every server that is a client of a cluster: the console and the gateway.

Starlette and uvicorn are below it. What is a server's own are arguments: its name and words in errors, its limits,
hosts and headers. It may import `base`, `client` and `operations`, for the errors it answers, and never a server.
Begin with `server`, then `guard` and `failures`.
"""
