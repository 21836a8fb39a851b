"""The plugin that pytest loads in every project where Moldau is installed."""

from __future__ import annotations

import subprocess
import sys


def test_the_plugin_imports_no_broker() -> None:
    script = "import sys, moldau.pytest_plugin; print(*(name for name in sys.modules if name.startswith('moldau')))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["moldau", "moldau.pytest_plugin"]
