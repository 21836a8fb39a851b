"""The transaction coordinator: who may write as a transactional id, and how its transactions end.

Begin with `transactions`, the state machine of a shard, and `transaction`, the state of one id. `initializing`,
`adding` and `ending` each decide one step of a transaction; `markers` says what the partitions are told.
"""
