"""Kafka for the gateway's fronts, on one event loop.

`account.py` is one user of the cluster; `brokers.py` its connections, topics and leaders; `producer.py` appends (with
`chunks.py`, `batches.py` and `partition_queue.py`, which are without I/O), `reader.py` follows. Begin with `account`.
"""
