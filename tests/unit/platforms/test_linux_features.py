"""Features that only Linux has: the boot id and the out-of-memory score. Elsewhere they are missing without error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from running_here import linux_only

from moldau.platforms.boot import boot_id
from moldau.platforms.scheduling import run_queue_wait_s, set_oom_score

SET_AND_PRINT_SCORE = """
from moldau.platforms.scheduling import set_oom_score
set_oom_score(500)
print(open("/proc/self/oom_score_adj").read())
"""


@linux_only
def test_the_boot_id_is_stable_and_empty_without_its_file(tmp_path: Path) -> None:
    assert len(boot_id()) == 36
    assert boot_id() == boot_id()
    assert boot_id(str(tmp_path / "none")) == ""


@linux_only
def test_the_oom_score_is_set_if_its_file_exists(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-c", SET_AND_PRINT_SCORE], check=True, capture_output=True, text=True
    ).stdout
    assert int(output) == 500
    set_oom_score(500, str(tmp_path / "none" / "score"))
    assert not (tmp_path / "none").exists()


def test_the_wait_for_a_processor_is_unknown_without_its_file(tmp_path: Path) -> None:
    file = tmp_path / "schedstat"
    assert run_queue_wait_s(str(file)) is None
    file.write_text("930033 2500000000 2\n", "ascii")
    assert run_queue_wait_s(str(file)) == 2.5


@linux_only
def test_linux_tells_the_wait_for_a_processor() -> None:
    assert run_queue_wait_s() is not None
