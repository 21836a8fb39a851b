"""Spark's Python processes, started by fork from one that has imported everything.

For one streaming query Spark starts some twenty Python processes: a daemon for each kind of work, the workers they
fork, a planner for each source. Each imports PySpark out of a zip without bytecode, then pyarrow and numpy: 1 to 2.5 s
of CPU time apiece, and Spark gives up on a planner that has not answered within ten seconds. Here instead:

    driver ──starts──▶ fork server: imports PySpark, pyarrow and the connector once, while the JVM starts
    JVM ────starts──▶ launcher (PYSPARK_PYTHON): hands its arguments, environment and standard files to the fork server,
                      which forks the process that was asked for, and stays as its stand-in until that ends

    fork_server.py    the server
    launcher.py       the stand-in; it imports nothing but the standard library
    starting.py       what the driver does

Only for local masters, where driver and workers share this machine. A launcher that finds no fork server becomes a
plain Python, which is what Spark would have started.
"""
