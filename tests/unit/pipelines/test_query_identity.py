"""A checkpoint is resumed by the query that wrote it, or by a changed query with which Spark continues correctly. Other
queries are refused."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from moldau.pipelines.reading.loading import load
from moldau.pipelines.running import identity
from moldau.pipelines.running.identity import QueryIdentity, WrongCheckpoint
from moldau.pipelines.running.python_code import code_digest, is_same_code
from moldau.pipelines.running.state_directory import StateDirectory, write_json

PIPELINE = """\
name: shop
sources:
  events: {topics: [clicks, views], schema: user string, dead_letter: drop}
  users: {topic: users, format: json, schema: user string}
  files: {file: "*.csv", format: csv, schema: a int, watch: true}
steps:
  - {name: joined, sql: "select * from Events e join users u using (user)"}
  - {name: counted, sql: "select user, count(*) from joined group by user"}
  - {name: other, sql: "select 'events' as x, a from files"}
sinks:
  - {name: counts, from: counted, topic: counts, mode: update}
  - {name: others, from: other, topic: others}
"""


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


def query(
    sources: Mapping[str, Sequence[str]] | None = None, mode: str = "append", **steps: str
) -> dict[str, QueryIdentity]:
    digests = {name: identity.digest(text) for name, text in steps.items()}
    return {"counts": QueryIdentity(sources or {"events": ["topic clicks"]}, digests, mode)}


def check_and_run(directory: StateDirectory, queries: Mapping[str, QueryIdentity], state: bool = False) -> None:
    """Check the queries, and leave what they would after a batch."""
    identity.check(directory, "shop", queries)
    for name in queries:
        checkpoint = directory.checkpoint(name)
        write_json(checkpoint / "metadata", {"id": f"id of {name}"})
        (checkpoint / "offsets").mkdir(exist_ok=True)
        (checkpoint / "offsets" / "0").touch()
        if state:
            (checkpoint / "state" / "0").mkdir(parents=True, exist_ok=True)
    assert identity.record(directory, "shop", queries, lambda: "abc") == "abc"


def test_the_same_queries_resume(directory: StateDirectory) -> None:
    check_and_run(directory, query(a="select 1"), state=True)
    check_and_run(directory, query(a="select\n   1"), state=True)


def test_the_state_of_another_pipeline_is_refused(directory: StateDirectory) -> None:
    check_and_run(directory, query())
    with pytest.raises(WrongCheckpoint, match=r"checkpoints of pipeline shop, not of bank; .*--state"):
        identity.check(directory, "bank", query())


def test_checkpoints_without_an_identity_are_refused(directory: StateDirectory) -> None:
    check_and_run(directory, query())
    (directory.path / identity.IDENTITY).unlink()
    with pytest.raises(WrongCheckpoint, match=r"sink counts: .*nothing says of which pipeline.*--fresh counts"):
        identity.check(directory, "shop", query())
    identity.check(directory, "shop", {"others": QueryIdentity({})})


def test_a_checkpoint_of_another_query_is_refused(directory: StateDirectory) -> None:
    check_and_run(directory, query())
    write_json(directory.checkpoint("counts") / "metadata", {"id": "another"})
    with pytest.raises(WrongCheckpoint, match="by another query"):
        identity.check(directory, "shop", query())


@pytest.mark.parametrize(
    "now",
    [{"events": ["topic views"]}, {"clicks": ["topic clicks"]}, {"events": ["topic clicks"], "users": ["topic users"]}],
)
def test_changed_sources_are_refused(directory: StateDirectory, now: dict[str, list[str]]) -> None:
    check_and_run(directory, query())
    with pytest.raises(WrongCheckpoint, match=r"about events \(topic clicks\), and it reads"):
        identity.check(directory, "shop", query(now))


def test_a_source_may_get_more_topics(directory: StateDirectory) -> None:
    check_and_run(directory, query())
    check_and_run(directory, query({"events": ["topic clicks", "topic views"]}))
    with pytest.raises(WrongCheckpoint):
        identity.check(directory, "shop", query())


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("select 'a  b' from t", "select 'a b' from t"),
        ("select 'a b' from t", "select 'a\nb' from t"),
        ('select "a  b" from t', 'select "a b" from t'),
        ("select `a  b` from t", "select `a b` from t"),
        ("select 'it''s  a' from t", "select 'it''s a' from t"),
        (r"select 'it\'s  a' from t", r"select 'it\'s a' from t"),
        ("select a -- one\n, b from t", "select a -- one , b from t"),
    ],
)
def test_changed_white_space_in_a_literal_or_at_the_end_of_a_comment_changes_a_step(
    directory: StateDirectory, before: str, now: str
) -> None:
    for old, new in ((before, now), (now, before)):
        check_and_run(directory, query(a=old), state=True)
        with pytest.raises(WrongCheckpoint, match="holds state, and step a changed since"):
            identity.check(directory, "shop", query(a=new))
        identity.forget(directory, None)  # all


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("select 'a  b'  from t", "select\n'a  b' from t"),
        ("select a -- one\n, b from t", "select a\n  -- one\n  , b\n from t"),
        ("select /* one\ntwo */ a from t", "select /* one two */\n a from t"),
    ],
)
def test_changed_layout_outside_of_literals_does_not_change_a_step(
    directory: StateDirectory, before: str, now: str
) -> None:
    check_and_run(directory, query(a=before), state=True)
    check_and_run(directory, query(a=now), state=True)


@pytest.mark.parametrize("text", ["select count(*)\n  from t", "select 'a  b' from t -- one\nwhere x"])
def test_a_checkpoint_of_an_older_version_is_still_resumed(directory: StateDirectory, text: str) -> None:
    old_digest = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]
    check_and_run(directory, {"counts": QueryIdentity({"events": ["topic clicks"]}, {"a": old_digest})}, state=True)
    assert identity.resumes_with_changed_steps(directory, query(a=text), ()) == []
    check_and_run(directory, query(a=text), state=True)
    with pytest.raises(WrongCheckpoint, match="holds state, and step a changed since"):
        identity.check(directory, "shop", query(a=text + " limit 1"))


def test_a_query_without_literals_keeps_its_digest() -> None:
    assert identity.digest("select  count(*)\nfrom t") == hashlib.sha256(b"select count(*) from t").hexdigest()[:16]


def test_without_state_steps_may_change(directory: StateDirectory) -> None:
    check_and_run(directory, query(a="select 1"))
    check_and_run(directory, query(a="select 2", b="select 3", mode="update"))


def test_with_state_steps_may_not_change(directory: StateDirectory) -> None:
    check_and_run(directory, query(a="select 1", b="select 2", c="select 3"), state=True)
    with pytest.raises(WrongCheckpoint, match=r"sink counts: .* holds state, and steps b, c, d changed since"):
        identity.check(directory, "shop", query(a="select 1", b="select 9", d="select 4"))
    with pytest.raises(WrongCheckpoint, match="in mode append, and the mode is update now"):
        identity.check(directory, "shop", query(a="select 1", b="select 2", c="select 3", mode="update"))


def test_with_two_streams_steps_may_not_change_either(directory: StateDirectory) -> None:
    both = {"events": ["topic clicks"], "users": ["topic users"]}
    check_and_run(directory, query(both, a="select 1"))
    with pytest.raises(WrongCheckpoint, match="offsets of several streams, and step a changed"):
        identity.check(directory, "shop", query(both, a="select 2"))


def test_changed_steps_that_may_resume_are_reported(directory: StateDirectory) -> None:
    """The user must know that the rows written before come from the old step."""
    check_and_run(directory, query(a="select 1", b="select 2"))
    assert identity.resumes_with_changed_steps(directory, query(a="select 1", b="select 2"), ()) == []
    assert identity.resumes_with_changed_steps(directory, query(a="select 1", b="select 3"), ()) == [
        "sink counts: step b changed since the last run; what was written before stays as it is,"
        " `--fresh counts` writes it again"
    ]
    assert identity.resumes_with_changed_steps(directory, query(a="select 0"), ["counts"]) == []
    assert identity.resumes_with_changed_steps(directory, query(a="select 0"), None) == [], "all are forgotten"


def test_forgetting_one_query_leaves_the_others(directory: StateDirectory) -> None:
    queries = query(a="select 1") | {"others": QueryIdentity({"events": ["topic clicks"]})}
    check_and_run(directory, queries, state=True)
    assert identity.forget(directory, ["counts", "nothing"]) == ["counts"]
    changed = query(a="select 2") | {"others": queries["others"]}
    identity.check(directory, "shop", changed)
    assert directory.queries() == ["others"]
    assert identity.forget(directory, None) == ["others"], "None forgets all queries"
    identity.check(directory, "bank", query())


@pytest.mark.parametrize(("before", "now"), [("a", "a+b"), ("a+b", "b"), ("a+b", "a+b+c")])
def test_a_sink_that_ran_in_another_query_is_refused(directory: StateDirectory, before: str, now: str) -> None:
    """It would write everything again."""
    check_and_run(directory, {before: QueryIdentity({"events": ["topic clicks"]})})
    with pytest.raises(WrongCheckpoint, match=rf"^sink \w: it ran as .* before, .* --fresh {re.escape(before)}`"):
        identity.check(directory, "shop", {now: QueryIdentity({"events": ["topic clicks"]})})
    identity.check(directory, "shop", {"others": QueryIdentity({})})


def test_all_conflicts_are_reported_at_once(directory: StateDirectory) -> None:
    """Otherwise a user removes one checkpoint, and is then refused because of the other."""
    mine = {name: QueryIdentity({"events": ["topic clicks"]}) for name in ("a", "b", "c")}
    check_and_run(directory, mine)
    others = {name: QueryIdentity({"events": ["topic views"]}) for name in ("a", "b")} | {"c": mine["c"]}
    with pytest.raises(WrongCheckpoint, match=r"^sink a: .*; sink b: .* --fresh a --fresh b` .* once more"):
        identity.check(directory, "shop", others)
    with pytest.raises(WrongCheckpoint, match=r"^sink b: .* --fresh b` "):
        identity.check(directory, "shop", others, forgotten=["a"])
    identity.check(directory, "shop", others, forgotten=["a", "b"])
    identity.check(directory, "shop", others, forgotten=None)  # all
    with pytest.raises(WrongCheckpoint, match="not of bank"):
        identity.check(directory, "bank", others, forgotten=None)
    assert directory.queries() == ["a", "b", "c"]


def test_sinks_that_share_a_query_are_one_query_in_a_stream_and_separate_in_a_batch(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    text = PIPELINE.replace("topic: counts, mode: update", "topic: counts")
    file.write_text(f"{text}  - {{name: also, from: counted, topic: more, with: counts}}\n")
    pipeline = load(file, check_files=False)
    assert list(identity.of_pipeline(pipeline)) == ["users.dead-letters", "also+counts", "others"]
    assert list(identity.of_pipeline(pipeline, each_sink_alone=True)) == [
        "users.dead-letters",
        "counts",
        "others",
        "also",
    ]


def test_the_identity_of_each_query_of_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    queries = identity.of_pipeline(load(file, check_files=False))
    assert {name: query.sources for name, query in queries.items()} == {
        "users.dead-letters": {"users": ["topic users"]},
        "counts": {"events": ["topic clicks", "topic views"], "users": ["topic users"]},
        "others": {"files": ["files *.csv"]},
    }
    assert set(queries["counts"].steps) == {"counted", "joined", "events", "users"}
    assert (queries["counts"].mode, queries["others"].mode) == ("update", "append")

    file.write_text(PIPELINE.replace("count(*)", "sum(1)").replace("select 'events' as x,", "select 'events'   as x,"))
    changed = identity.of_pipeline(load(file, check_files=False))
    differing = [step for step, text in changed["counts"].steps.items() if text != queries["counts"].steps[step]]
    assert (differing, changed["others"]) == (["counted"], queries["others"])


def test_the_identity_of_remote_files_does_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace('"*.csv"', '"s3a://bucket/in/*.csv"'))
    read = []
    for folder in (tmp_path, Path("/")):
        monkeypatch.chdir(folder)
        read.append(identity.of_pipeline(load(file, check_files=False))["others"].sources)
    assert read == [{"files": ["files s3a:/bucket/in/*.csv"]}] * 2


@pytest.mark.parametrize("path", ["s3a:/bucket/in", "../../s3a:/bucket/in", "../file:/data/in"])
def test_remote_files_recorded_by_an_earlier_version_are_recognised(path: str) -> None:
    url = path[path.rindex("../") + 3 :] if "../" in path else path
    assert identity._covers({"files": [f"files {url}"]}, {"files": [f"files {path}"]})
    assert not identity._covers({"files": ["files s3a:/other"]}, {"files": [f"files {path}"]})


TWICE = """\
name: shop
sources:
  events: {topic: clicks, schema: user string}
  rates: {file: "*.csv", format: csv, schema: a int}
steps:
  - {name: kept, sql: "select * from events"}
  - {name: both, sql: "select * from kept where user = 'a' union all select * from kept where user = 'b'"}
sinks:
  - {name: out, from: both, topic: out}
"""


def test_a_source_that_is_read_in_more_or_fewer_places_is_refused(directory: StateDirectory, tmp_path: Path) -> None:
    """Spark keeps an offset for each place, and refuses a checkpoint with another number of them."""
    file = tmp_path / "pipeline.yaml"

    def queries(text: str) -> dict[str, QueryIdentity]:
        file.write_text(text)
        return identity.of_pipeline(load(file, check_files=False))

    twice, once = queries(TWICE), queries(TWICE.replace(" union all select * from kept where user = 'b'", ""))
    assert (twice["out"].mentions, once["out"].mentions) == ({"events": 2}, {"events": 1})
    check_and_run(directory, twice)
    with pytest.raises(WrongCheckpoint, match=r"sink out: .* events is read in 2 places, and it is read in 1 now"):
        identity.check(directory, "shop", once)
    check_and_run(directory, queries(TWICE.replace("user = 'a'", "user = 'c'")))
    check_and_run(directory, queries(TWICE.replace("from kept where user = 'b'", "from kept, rates")))


def test_a_checkpoint_without_mentions_is_resumed(directory: StateDirectory) -> None:
    """Older versions did not record them."""
    check_and_run(directory, {"out": QueryIdentity({"events": ["topic clicks"]})})
    known = identity.read_json(directory.path / identity.IDENTITY)
    assert known is not None
    del known["queries"]["out"]["mentions"]
    write_json(directory.path / identity.IDENTITY, known)
    identity.check(directory, "shop", {"out": QueryIdentity({"events": ["topic clicks"]}, mentions={"events": 2})})


PYTHON = """
name: shop
sources:
  events: {topic: in, schema: id string}
steps:
  - {name: checked, python: rules:check, inputs: [events]}
sinks:
  - {name: SINK, from: checked, topic: alarms}
"""


def python_queries(folder: Path, code: str, sink: str = "out", **beside: str) -> dict[str, QueryIdentity]:
    (folder / "pipeline.yaml").write_text(PYTHON.replace("SINK", sink))
    (folder / "rules.py").write_text(code)
    for name, text in beside.items():
        (folder / f"{name}.py").write_text(text)
    return identity.of_pipeline(load(folder / "pipeline.yaml"))


def test_changed_code_of_a_python_step_changes_its_query(directory: StateDirectory, tmp_path: Path) -> None:
    code = "from limits import LIMIT\ndef check(frame):\n    return frame.where(f'fee > {LIMIT}')\n"
    check_and_run(directory, python_queries(tmp_path, code, limits="LIMIT = 5"))
    same = python_queries(tmp_path, "# the rules\n" + code.replace("(frame)", "( frame )"), limits="LIMIT = 5")
    assert identity.resumes_with_changed_steps(directory, same, ()) == []
    for queries in (
        python_queries(tmp_path, code.replace(">", ">="), limits="LIMIT = 5"),
        python_queries(tmp_path, code, limits="LIMIT = 6"),
    ):
        (line,) = identity.resumes_with_changed_steps(directory, queries, ())
        assert line.startswith("sink out: step checked changed since the last run")
        identity.check(directory, "shop", queries)
    (directory.checkpoint("out") / "state" / "0").mkdir(parents=True)
    with pytest.raises(WrongCheckpoint, match="its checkpoint holds state, and step checked changed since"):
        identity.check(directory, "shop", python_queries(tmp_path, code, limits="LIMIT = 6"))


def test_another_version_of_python_does_not_change_the_code(
    directory: StateDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 has more fields in its syntax trees, and `ast.dump` of 3.13 leaves out empty ones."""
    code = "def check(frame):\n    return frame\n"
    check_and_run(directory, python_queries(tmp_path, code))
    monkeypatch.setattr(ast, "dump", lambda tree: f"as another Python shows it: {len(tree.body)}")
    assert identity.resumes_with_changed_steps(directory, python_queries(tmp_path, code), ()) == []
    changed = python_queries(tmp_path, code.replace("return frame", "return frame.distinct()"))
    assert len(identity.resumes_with_changed_steps(directory, changed, ())) == 1


def test_the_digest_of_code_is_the_same_in_all_versions_of_python(tmp_path: Path) -> None:
    code = (
        "def check(frame, *, limit: int | None = None):\n    return [frame, f'{limit!r:>5}', {**{}}, -1.5, b'', None]\n"
    )
    (tmp_path / "rules.py").write_text(code)
    assert code_digest("rules", tmp_path).partition("-")[2] == "5b1ee216eb7273ae"


@pytest.mark.parametrize(
    "changed", ["common/__init__.py", "common/limits.py", "common/deep/__init__.py", "common/deep/a.py"]
)
def test_changed_modules_of_packages_change_the_code_digest(tmp_path: Path, changed: str) -> None:
    files = {
        "rules.py": "import common.limits\n",
        "common/__init__.py": "from .deep import a\n",
        "common/limits.py": "LIMIT = 5\n",
        "common/deep/__init__.py": "",
        "common/deep/a.py": "from .. import limits\n",
        "common/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = code_digest("rules", tmp_path)
    (tmp_path / "common" / "unused.py").write_text("X = 1")
    assert is_same_code(before, code_digest("rules", tmp_path))
    (tmp_path / changed).write_text(files[changed] + "X = 1\n")
    assert not is_same_code(before, code_digest("rules", tmp_path))


@pytest.mark.parametrize("text", [" + ".join(["1"] * 2000), "-" * 5000 + "1"], ids=["sum", "signs"])
def test_deeply_nested_code_has_a_digest(tmp_path: Path, text: str) -> None:
    """Python compiles the first of them, and not the second."""
    (tmp_path / "steps.py").write_text("import constants\n")
    (tmp_path / "constants.py").write_text(f"total = {text}\n")
    before = code_digest("steps", tmp_path)
    assert is_same_code(before, code_digest("steps", tmp_path))
    (tmp_path / "constants.py").write_text(f"total = {text}2\n")
    assert not is_same_code(before, code_digest("steps", tmp_path))


def test_a_code_digest_of_an_older_version_is_still_recognized(directory: StateDirectory, tmp_path: Path) -> None:
    queries = python_queries(tmp_path, "def check(frame):\n    return frame\n")
    check_and_run(directory, queries)
    known = identity.read_json(directory.path / identity.IDENTITY)
    assert known is not None
    code = known["queries"]["out"]["code"]
    code["checked"] = code["checked"].partition("-")[0]
    write_json(directory.path / identity.IDENTITY, known)
    assert identity.resumes_with_changed_steps(directory, queries, ()) == []
    changed = python_queries(tmp_path, "def check(frame):\n    return frame.distinct()\n")
    assert len(identity.resumes_with_changed_steps(directory, changed, ())) == 1


def test_a_checkpoint_without_recorded_code_is_not_reported_as_changed(
    directory: StateDirectory, tmp_path: Path
) -> None:
    queries = python_queries(tmp_path, "def check(frame):\n    return frame\n")
    check_and_run(directory, queries)
    known = identity.read_json(directory.path / identity.IDENTITY)
    assert known is not None
    del known["queries"]["out"]["code"], known["queries"]["out"]["writes"]
    write_json(directory.path / identity.IDENTITY, known)
    assert identity.resumes_with_changed_steps(directory, queries, ()) == []


def test_a_renamed_sink_that_would_write_everything_again_is_refused(directory: StateDirectory, tmp_path: Path) -> None:
    code = "def check(frame):\n    return frame\n"
    check_and_run(directory, python_queries(tmp_path, code, sink="alarms"))
    renamed = python_queries(tmp_path, code, sink="alerts")
    reason = "sink alerts: it has no checkpoint, and sink alarms, no longer in the file, wrote to topic alarms before"
    with pytest.raises(WrongCheckpoint, match=rf"^{reason}; .*`moldau pipeline run shop.yaml --fresh alarms`"):
        identity.check(directory, "shop", renamed, shown_file="shop.yaml")
    identity.check(directory, "shop", renamed, left_out=["alarms"])  # both are in the file
    identity.check(directory, "shop", renamed, forgotten=["alarms"])
    assert identity.outputs_written(directory, ["alarms", "alerts"]) == {"topic alarms"}
