"""The gateway's HTTP front: records in by POST, records out as events, and the calls of the REST proxy.

`intake.py` is the way in and answers without a framework; `application.py` says what answers which path. Limits are in
`limits.py`. Begin with `application`.
"""
