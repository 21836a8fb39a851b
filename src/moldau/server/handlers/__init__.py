"""The handlers: one module for each API or few related ones, and modules that several of them share.

To add an API, write a class that derives from `server.handler.Handler`, or `forwarded.ForwardedHandler` if the
controller decides it, and run `tools/generate_api_tables.py`. `server/apis.py` finds it. Handlers may import what
`server` may; those of different APIs do not import each other.
"""
