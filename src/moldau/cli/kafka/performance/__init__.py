"""The performance tools: latencies and the statistics of a client."""
