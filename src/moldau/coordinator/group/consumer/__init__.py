"""The protocol of consumer groups (KIP-848): one heartbeat, and the coordinator assigns the partitions.

It does not know `classic`: how groups change their protocol is behind the interface in its `migration`. Begin with
`heartbeat`, then `change`, which computes what a request changes, and `reconcile`, which moves a member to its
target.
"""
