"""A node on a real machine: `node.py` has its sockets, threads and disks, `process.py` its signals."""

from moldau.node.node import Node, require_support
from moldau.node.process import new_loop, run

__all__ = ["Node", "new_loop", "require_support", "run"]
