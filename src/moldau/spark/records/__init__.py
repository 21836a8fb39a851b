"""Converts record batches to Arrow columns and back, and keys to partitions. numpy and pyarrow, no sockets or Spark."""
