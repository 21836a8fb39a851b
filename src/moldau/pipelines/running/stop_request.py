"""The request to stop a run: by a signal in its own process, or by `moldau pipeline stop` in another."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.pipelines.running.state_directory import StateDirectory


@dataclass(slots=True)
class Stop:
    """The request to stop a run; a second request stops it at once. Safe to call from a signal handler."""

    reason: str | None = None
    at_once: bool = False

    def request(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
        else:
            self.at_once = True

    def is_requested(self, directory: StateDirectory) -> bool:
        """Return whether a signal, or the stop file in the state directory, has requested it."""
        if self.reason is None and directory.stop_requested():
            self.request("stopped by `moldau pipeline stop`")
        return self.reason is not None
