"""Stands before the real package on the path of programs that shall do without it."""

raise ModuleNotFoundError("No module named 'confluent_kafka'", name="confluent_kafka")
