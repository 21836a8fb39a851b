"""Kafka's own tools by their own names, flags and output: one module a tool, each with `main(argv) -> exit status`."""
