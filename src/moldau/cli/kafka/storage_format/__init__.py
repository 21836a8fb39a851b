"""`kafka-storage`: the first snapshot of a metadata log."""
