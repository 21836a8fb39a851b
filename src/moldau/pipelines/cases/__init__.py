"""Test cases of a pipeline: files in, the real pipeline, what came out compared with files."""
