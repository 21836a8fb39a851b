"""Starts Spark's Python processes by fork from one that has imported everything.

For one streaming query Spark starts some twenty Python processes: a daemon for each kind of work, the workers they
fork, a planner for each source. Each imports PySpark from a zip without bytecode, then pyarrow and numpy: 1 to 2.5 s of
CPU time each, and Spark gives up on a planner that has not responded within ten seconds. Here instead:

    driver ──starts──▶ fork server: imports PySpark, pyarrow and the connector once, while the JVM starts
    JVM ────starts──▶ launcher (PYSPARK_PYTHON): sends its arguments, environment and standard files to the fork server,
                      which forks the requested process; the launcher waits as its proxy until that process ends

    fork_server.py    the server
    launcher.py       the proxy; it imports only the standard library
    starting.py       the driver's part

Only for local masters, where driver and workers share this machine. A launcher that finds no fork server becomes a
plain Python, which is what Spark would have started.
"""
