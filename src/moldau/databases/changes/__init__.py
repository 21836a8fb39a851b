"""The changes of a database's table as a stream: first the table as it is, then each change once, in commit order.

PostgreSQL's changes come from its log (logical decoding); of SQLite a column that grows is followed. Begin with
`stream.py`: what Spark asks between batches; `reading.py` reads the rows of a batch. `pgoutput.py`, `columns.py`,
`rows.py`, `offsets.py` and `visibility.py` are pure. `source.py` is Spark's interface. The protocol and why it neither
loses nor repeats a change: docs/decisions/036-changes-of-a-database.md.
"""
