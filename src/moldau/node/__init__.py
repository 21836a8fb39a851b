"""A node on a real machine: `node.py` has its sockets, threads and disks, `process.py` its signals.

It may import `assembly`, `settings`, and of a broker's packages what it puts on sockets, threads and disks. Begin with
`node`.
"""

from moldau.node.node import Node, require_support
from moldau.node.process import run

__all__ = ["Node", "require_support", "run"]
