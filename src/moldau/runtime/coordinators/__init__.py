"""Group and transaction coordinators at work: shards over the partitions of their topics, transaction markers."""
