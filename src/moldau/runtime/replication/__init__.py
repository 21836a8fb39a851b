"""Replication: fetchers that copy from leaders, and changes of in-sync replicas."""
