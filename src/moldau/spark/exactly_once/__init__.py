"""A micro-batch into topics, whole and once: staged by tasks, written by the driver in one transaction."""
