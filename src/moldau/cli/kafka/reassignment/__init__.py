"""`kafka-reassign-partitions`: plans and proposals, throttles, moves between log directories."""
