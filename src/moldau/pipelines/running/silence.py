"""A run that shows nothing of itself."""

from __future__ import annotations

from types import TracebackType

from moldau.pipelines.running.progress import RunStatus


class Silence:
    """A view of a run for whoever only wants to know how it ended."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, status: RunStatus) -> None:
        pass

    def say(self, text: str) -> None:
        pass
