"""Coordinators of groups and transactions as replicated state machines: decide, apply, append.

Pure: they may import `base`, `wire` and `metadata`. `runtime/coordinators` appends their records and runs their
deadlines. Begin with `machine`, which is what both have in common, then `group/groups` or `transaction/transactions`.
"""
