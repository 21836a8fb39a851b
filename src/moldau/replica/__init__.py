"""The partitions of this node: as leader or follower, their in-sync replicas, and the reads of consumers and
followers.

Pure. It may import `base`, `wire`, `log`, `views` and `metadata`. Begin with `partition`, then `leadership` for the
followers of a leader and `reading` for fetches; `partitions` has all of them and follows the image.
"""
