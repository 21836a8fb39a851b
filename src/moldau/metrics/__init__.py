"""Metrics in the text format of Prometheus, with the names that dashboards for Kafka expect."""
