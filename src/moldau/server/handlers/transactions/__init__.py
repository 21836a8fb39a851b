"""The APIs of the transaction coordinator, and those by which brokers carry out what it decides."""
