"""What the command line and the console both do with a cluster: plans, checks and the values that they show.

Lag, the offsets a group moves to, where replicas are placed, transactions that hang, rights of users. Nothing here
knows a terminal or HTTP: an operation fails with `failures.OperationFailed`, and what helps is a `NextStep`, for which
`cli` names a command or a flag and `console` a page or a field.
It may import `client`, `security` and what these share (`base`, `wire`). Begin with `next_steps` and `failures`, then
the module of the noun: `groups`, `offset_moves`, `lag`, `transactions`, `cluster_overview`.
"""
