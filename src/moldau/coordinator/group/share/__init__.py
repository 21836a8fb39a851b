"""Share groups (KIP-932): one heartbeat, by which members get partitions that they may share with others.

Begin with `heartbeat`, then `change`, which computes what a request changes. `states` is about which partitions the
share coordinators keep a state for: only those are assigned. `initializing` and `offsets` decide what of these states
is made and deleted; `runtime/coordinators/share_states` asks the share coordinators for it.
"""
