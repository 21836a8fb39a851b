"""Metrics in the text format of Prometheus, with the names that dashboards for Kafka expect.

Each `collect…` yields pieces of the text, and the event loop has a turn after each piece. An empty piece only ends the
turn.

Pure. It may import `base`, `prometheus`, `raft`, `metadata`, `coordinator`, `replica` and `telemetry`. Begin with
`topics`; `assembly/metrics` connects all of them, `prometheus/listener` serves them.
"""
