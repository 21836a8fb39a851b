"""Share groups (KIP-932): one heartbeat, by which members get partitions that they may share with others.

Begin with `heartbeat`, then `change`, which computes what a request changes. `states` is about which partitions the
share coordinators keep a state for: only those are assigned. `initializing` and `offsets` decide which of these states
are made and deleted; `runtime/coordinators/share_group_states` asks the share coordinators for it.
"""
