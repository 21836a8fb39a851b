"""Writes a micro-batch to topics exactly once: tasks stage it, the driver writes it in one transaction."""
