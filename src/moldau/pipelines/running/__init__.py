"""Flows kept running: state directory, start order, watching, restarts, what people see."""
