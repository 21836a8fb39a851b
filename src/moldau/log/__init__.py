"""The append-only log of a partition on disk, and all logs of a data directory. Pure: files, times and threads come
from the caller.

It may import `platforms`, `base`, `wire` and `columns`; only `cleaning` uses `columns`. Begin with `log`, the log of
one partition, then `segment` and `store`. `recovery` opens logs, `files` is the disk as the log sees it, `layout` has
the names of files.
"""
