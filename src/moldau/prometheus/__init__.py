"""Prometheus: the text of metrics, and the listener that serves it. The metrics themselves are in `metrics` and in
`pipelines`.

It may import `base`. Begin with `text`.
"""
