"""`kafka-consumer-groups`: which groups and partitions are meant, the tables, and resets of offsets."""
