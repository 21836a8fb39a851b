"""Backends: where the rows of a pipeline go that are neither topics nor tables, and where rows come from.

A backend is a class with `open`, `write(rows)` and `close` (`interface.py`). `policy.py` decides, without clock and
I/O, who may send when: rate, pauses, circuit. `sending.py` sends by it, with threads. `catalog.py` names the backends
that come with Moldau; each is one module (`http.py`, `mail.py`, …) beside it. `pipelines` calls them in Spark's tasks.

May import `base` only, and nothing of Spark: a backend is tested without it. Begin with `interface` and `policy`.
"""

from moldau.backends.interface import Away, Backend, BackendSource, Failed, Misconfigured, Refused, Retry, Row

__all__ = ["Away", "Backend", "BackendSource", "Failed", "Misconfigured", "Refused", "Retry", "Row"]
