"""A pipeline file read into a spec: YAML with its places, variables, every mistake told where it is."""
