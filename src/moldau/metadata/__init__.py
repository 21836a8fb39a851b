"""The metadata of a cluster: the records of its log, and the immutable image that they make.

Pure. It may import `base`, `wire`, `security` and `views`. Begin with `image`, then `apply`, which changes it by the
records of `wire/log_records/metadata`; `current` holds the committed image that handlers read. `controller` decides
which records are written.
"""
