"""The share coordinator (KIP-932): keeps, for each share group and partition, which records the group has done with.

Begin with `partition_states`, the state machine of a shard, and `state`, the state of one partition; `batches` merges
the state of offsets. The states live in `__share_group_state` as snapshots and updates.
"""
