"""Databases beside the cluster, over their own drivers (`pip install 'moldau[databases]'`).

`changes` reads the changes of a table as a stream. No driver is imported before a connection is made.
"""
