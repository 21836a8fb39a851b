"""Shows users the sentence of an error, and Spark's traces only on request.

An error of the connector is raised in a Python worker, passes through the JVM as text, and becomes a PySpark exception
in the driver. `untraced` handles it in the worker, `conversion` in the driver.
"""
