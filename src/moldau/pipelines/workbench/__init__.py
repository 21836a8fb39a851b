"""Work on a pipeline with a Spark that stays: check it, look at rows, run its cases, again and again."""
