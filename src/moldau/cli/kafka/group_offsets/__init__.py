"""`kafka-consumer-groups` and `kafka-share-groups`: the selected groups and partitions, the tables, and resets of
offsets."""
