"""The quorum's state on disk: the file `quorum-state` beside the metadata log, replaced atomically."""

from __future__ import annotations

import os

from moldau.log.checkpoints import replace_file
from moldau.log.files import Files
from moldau.raft.quorum_state import QuorumState

NAME = "quorum-state"


class QuorumStateFile:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def read(self) -> QuorumState | None:
        content = self._files.read(os.path.join(self._directory, NAME))
        return None if content is None else QuorumState.decode(content)

    def write(self, state: QuorumState) -> None:
        replace_file(self._files, self._directory, NAME, state.encode())
