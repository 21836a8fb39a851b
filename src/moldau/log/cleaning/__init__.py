"""Compaction of a log: which records stay, the new segments, and how these replace the old ones.

A node loads only `job` and `swap`; the others need numpy and run in the cleaner's process (`runtime/cleaning`). The
workers of views read segments with `pieces` and `rows`. Begin with `clean`, which is one round; `log/compaction`
gives it the job and takes the result.
"""
