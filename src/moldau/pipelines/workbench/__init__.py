"""Work on a pipeline with a Spark that keeps running: check it, preview rows, run its cases, again and again."""
