"""Databases beside the cluster, over their own drivers (`pip install 'moldau[databases]'`).

`writing.write` stores a batch of rows exactly once (PostgreSQL, MySQL, SQLite, DuckDB); `destinations`, `dialects` and
`sql` decide how, without I/O. `changes` reads the changes of a table as a stream. No driver is imported before a
connection is made. It imports `platforms`, `base` and `spark`. Begin with `writing` and `changes/source`.
"""
