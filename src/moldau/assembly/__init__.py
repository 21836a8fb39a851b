"""Puts a node's parts together. The code is plain and uses ports (`World`): the same code runs as a broker on sockets
and disks, and as a node of a simulated cluster in virtual time.

There is no logic here: parts are created, started, and stopped in reverse order. `assembly` has what every node has,
`controller_side` what a controller adds, `broker_side` what a broker adds. It may import `settings` and every package
of a broker. Begin with `world`, then `assembly`.
"""

from moldau.assembly.assembly import Assembly
from moldau.assembly.world import World

__all__ = ["Assembly", "World"]
