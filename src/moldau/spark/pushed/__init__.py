"""Reads that the broker filters: the options `where` and `fields` read a view of each topic instead of the topic.

`shape` says what such a view is, `making` finds or makes it, and `view_cluster` is a cluster whose topics are views.
"""
