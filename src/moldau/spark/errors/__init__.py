"""Errors as people meet them: the sentence that was meant for them, and Spark's traces only for those who ask.

An error of the connector is raised in a Python process of Spark's, goes as text through the JVM, and becomes an
exception of PySpark's in the driver. `untraced` is the first of these places, `conversion` the last.
"""
