"""Processes that work for a broker: how they are started, given one request at a time, and ended. What is asked and
answered belongs to those who use them: the log cleaner and views.

Begin with `process.py`. `thread.py` gives a process its work from the event loop; `serving.py` is the process' side.
"""
