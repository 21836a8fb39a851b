"""The web console: a process of its own that speaks Kafka's protocol to any cluster, and HTTP to browsers."""
