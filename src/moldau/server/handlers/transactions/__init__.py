"""The APIs of the transaction coordinator, and those by which brokers carry out its decisions."""
