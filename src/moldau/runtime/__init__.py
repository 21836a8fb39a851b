"""What runs on a node: pure packages connected to timers, threads and other nodes.

It may import `platforms`, `client` and the pure packages except `telemetry` and `metrics`, but not `server`: nothing
here answers clients. `assembly` connects its parts. Begin with `quorum/driver`, `controller/active`,
`broker/lifecycle` or `coordinators/shard`; the modules here serve all of them: `flusher`, `housekeeping`, `timers`,
`chores`.
"""
