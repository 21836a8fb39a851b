"""The classic protocol of groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. A member assigns the partitions.

It knows neither `consumer` nor `migration`. Begin with `groups`, which has the requests, then `group`; `joining` and
`rebalance` have the rules.
"""
