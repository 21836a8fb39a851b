"""The life of a broker: registration, heartbeats, laying out its partitions, asking other brokers."""
