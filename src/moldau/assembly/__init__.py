"""A node's parts, put together. Plain code over a world of ports: on sockets and disks it is a broker, in virtual time
it is one of a simulated cluster, and the same lines run.

No logic lives here: parts are made, started, and stopped in reverse order. What every node has is in `assembly`, what a
controller adds in `controller_side`, what a broker adds in `broker_side`.
"""

from moldau.assembly.assembly import Assembly
from moldau.assembly.world import World

__all__ = ["Assembly", "World"]
