"""`kafka-consumer-groups`: the selected groups and partitions, the tables, and resets of offsets."""
