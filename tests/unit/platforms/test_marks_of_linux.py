"""What only Linux has: a boot id, a score for when memory runs out. Elsewhere their absence is no fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from running_here import linux_only

from moldau.platforms.boot import boot_id
from moldau.platforms.scheduling import set_oom_score

DIE_AND_TELL = """
from moldau.platforms.scheduling import set_oom_score
set_oom_score(500)
print(open("/proc/self/oom_score_adj").read())
"""


@linux_only
def test_this_start_of_the_machine_has_an_id_and_others_have_none(tmp_path: Path) -> None:
    assert len(boot_id()) == 36
    assert boot_id() == boot_id()
    assert boot_id(str(tmp_path / "none")) == ""


@linux_only
def test_a_score_is_set_where_there_is_one(tmp_path: Path) -> None:
    told = subprocess.run([sys.executable, "-c", DIE_AND_TELL], check=True, capture_output=True, text=True).stdout
    assert int(told) == 500
    set_oom_score(500, str(tmp_path / "none" / "score"))
    assert not (tmp_path / "none").exists()
