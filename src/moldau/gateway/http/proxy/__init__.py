"""The calls of the Kafka REST proxy (v2 and v3), for clients that were written for it.

`routes.py` says which path is answered by what; a call is a function of a `Request`. What it answers, also as errors,
has the form that the proxy gives it. docs/gateway-rest.md has the list. Begin with `routes`.
"""
