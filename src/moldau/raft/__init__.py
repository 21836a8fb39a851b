"""The quorum of the metadata log: KRaft as a state machine that decides who leads and what is committed.

Pure: it has no network, clock or disk; `runtime/quorum` drives it. It may import `base` and `wire`. Begin with
`machine`, which is its interface, then `roles` and `core`; `ports` says what it needs of its log.
"""
