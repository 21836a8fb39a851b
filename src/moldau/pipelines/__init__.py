"""Data pipelines: one YAML file with SQL in it, from topics to topics and lake tables, run on Spark.

The rooms inside: spec (what a pipeline is), loading (a file becomes a spec, or a list of problems that point at words),
graph and drawing (the flow as a picture), compiling and running (the flow as Spark queries).
Nothing of the broker enters; reading and drawing a pipeline needs neither Spark nor Java.
"""
