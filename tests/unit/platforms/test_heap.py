"""`share_heap`: threads share one heap with glibc; other C libraries are not changed, and cause no error."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from moldau.platforms.heap import share_heap


def test_glibc_accepts_the_settings() -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the C library is not glibc")
    code = "from moldau.platforms.heap import share_heap; print(share_heap())"
    shared = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shared.stdout == "True\n"


@pytest.mark.parametrize("error", [TypeError, OSError])
def test_other_c_libraries_are_not_changed(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def refuse(name: None) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert not share_heap()
