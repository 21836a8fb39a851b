"""The names of the files that `--secure` keeps in a data directory, beside those of the log."""

from __future__ import annotations

from typing import Final

AUTHORITY_KEY: Final = "authority.key"
AUTHORITY: Final = "authority.pem"
"""With this file, a data directory counts as secured."""
NODE: Final = "node.pem"
CLIENT: Final = "client.properties"
KEPT: Final = "secure.properties"
"""What later starts need again: the key of delegation tokens, the advertised name, and the names that the machine has
had."""
FIRST_RECORDS_FILE: Final = "bootstrap.checkpoint"
"""Records for the metadata log of a new cluster, in the format of a snapshot: its first users. The storage tool makes
it too."""
TEMPORARY: Final = ".tmp"
"""The end of the name of a file that is being written."""
_NAMES: Final = (AUTHORITY_KEY, AUTHORITY, NODE, CLIENT, KEPT, FIRST_RECORDS_FILE)
SECURE_FILES: Final = frozenset((*_NAMES, *(name + TEMPORARY for name in _NAMES)))
