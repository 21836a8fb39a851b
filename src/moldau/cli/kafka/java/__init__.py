"""What Java prints and in which order, for output that is the same as that of Apache Kafka's tools."""
