"""What every other package may use: ids, error codes, clocks, promises, limits, persistent maps, and the tables of
all topic and broker configs.

It imports nothing else of Moldau. Time and random numbers are arguments; only `clock` asks the system for the time.
Begin with `errors` and `promise`, then `clock`; for configs with `config_def` and the package `settings`, then
`topic_configs` and `broker_configs`.
"""
