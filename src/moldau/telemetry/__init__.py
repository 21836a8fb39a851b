"""The metrics that clients measure and push (KIP-714): who is asked for which, and the last values of each client.

Pure. It may import `base` and `wire`. Begin with `subscriptions`; `otlp` reads what a client pushes, `received` keeps
it. `server/handlers/telemetry` answers the requests, `metrics/clients` shows the values.
"""
