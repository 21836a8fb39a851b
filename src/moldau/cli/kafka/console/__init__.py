"""The console producer and consumer: lines to records, records to lines."""
