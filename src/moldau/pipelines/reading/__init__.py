"""Reads a pipeline file into a spec: YAML with places, variables, and every mistake with its position."""
