"""The parts of kafka-acls."""
