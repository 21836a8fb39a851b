"""The `Display` of runs that nobody watches, such as those of test cases."""

from __future__ import annotations

from types import TracebackType

from moldau.pipelines.running.progress import RunStatus


class Silence:
    """Shows nothing: the caller only needs the final status."""

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
