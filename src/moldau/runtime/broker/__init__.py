"""What a broker runs: registration, heartbeats, the layout of its partitions, requests to other brokers."""
