"""The group coordinator: groups of both protocols, and their committed offsets, as one state machine for each shard.

Begin with `groups`, the machine, and `state`, what it holds. `classic` and `consumer` are the two protocols,
`migration` leads from one to the other, `assignors` assign partitions, `offsets` has the commits. `group` is what all
kinds of groups have in common.
"""
