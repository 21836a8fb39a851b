"""`kafka-dump-log`: the records of internal topics and of the metadata log as text."""
