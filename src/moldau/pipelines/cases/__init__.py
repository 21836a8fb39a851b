"""Test cases of a pipeline: input files go through the real pipeline, and its output is compared with files."""
