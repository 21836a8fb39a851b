"""Credentials of a pipeline: ${env:…}, ${file:…} and command_config give them, and no message shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from marked_yaml import WHOLE_PIPELINE, line_column, load_text, marked, write

from moldau.client.secret_properties import MASK, masked, secret_values
from moldau.pipelines.problems import InvalidPipeline
from moldau.pipelines.reading.loading import load
from moldau.pipelines.spec import TopicSink, TopicSource

PLANTED = "pl4nted-pw"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="{PLANTED}";'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text(f"{PLANTED}\n")
    (tmp_path / "client.properties").write_text(
        "# of the admin\nsecurity.protocol=SASL_SSL\nsasl.mechanism: SCRAM-SHA-256\n"
        f"sasl.jaas.config={JAAS}\nbootstrap.servers=broker:9093\nkey.serializer=x.Y\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${file:password}", PLANTED),
        ("./${file:./password}", f"./{PLANTED}"),
        ("${file:client.properties:sasl.mechanism}", "SCRAM-SHA-256"),
        ("${file:client.properties:sasl.jaas.config}", JAAS),
        ('required username="a" password="${file:password}";', f'required username="a" password="{PLANTED}";'),
        ("$${file:password}", "${file:password}"),
    ],
)
def test_a_file_gives_a_value(folder: Path, written: str, value: str) -> None:
    assert load_text(folder, WHOLE_PIPELINE + f"kafka: {{x: '{written}'}}\n").kafka == {"x": value}


def test_a_file_with_an_absolute_path(folder: Path) -> None:
    text = WHOLE_PIPELINE + f"kafka: {{x: '${{file:{folder}/password}}'}}\n"
    assert load_text(folder, text).kafka == {"x": PLANTED}


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("kafka:\n  sasl.password: «${file:absent}»", "'absent' cannot be read: No such file or directory"),
        ("kafka:\n  sasl.password: x«${file:.}»", "'.' cannot be read: Is a directory"),
        ("kafka:\n  sasl.password: «${file:}»", "'${file:…}' needs the path of a file"),
        (
            "kafka:\n  x: «${file:client.properties:sasl.mechanisms}»",
            "'client.properties' has no property 'sasl.mechanisms', did you mean 'sasl.mechanism'?",
        ),
        ("kafka:\n  x: «${file:bad:key}»", "'bad': line 2: \\u is not followed by four hexadecimal digits"),
        ("kafka:\n  x: «${file:binary}»", "'binary' is not UTF-8"),
        ("kafka:\n  x: «${env:PASWORD}»", "the environment has no variable 'PASWORD'"),
        ("command_config: «absent.properties»", "'absent.properties' cannot be read: No such file or directory"),
        ("command_config: «bad»", "'bad': line 2: \\u is not followed by four hexadecimal digits"),
        ("«command-config»: client.properties", "unknown key 'command-config', did you mean 'command_config'?"),
    ],
)
def test_a_value_that_cannot_be_read_is_one_problem_at_its_place(folder: Path, written: str, message: str) -> None:
    (folder / "bad").write_text(f"password={PLANTED}\nx=\\uZZ{PLANTED}\n")
    (folder / "binary").write_bytes(b"\xff\xfe\x00" + PLANTED.encode())
    text, places = marked(WHOLE_PIPELINE + written + "\n")
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, text)
    (problem,) = raised.value.problems
    assert problem.message == message
    assert [line_column(problem)] == places
    assert PLANTED not in raised.value.render()


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(InvalidPipeline, match=r"'large' is larger than 1048576 bytes"):
        load_text(tmp_path, WHOLE_PIPELINE + "kafka: {x: '${file:large}'}\n")


def test_a_variable_named_with_a_lone_surrogate_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match=r"the environment has no variable '\\ud800'"):
        load(write(tmp_path, WHOLE_PIPELINE + 'kafka: {x: "${env:\\ud800}"}\n'))


@pytest.mark.parametrize(
    "line", ["kafka: {x: '${file:fifo}'}", "kafka: {x: '${file:fifo:key}'}", "command_config: fifo"]
)
def test_a_fifo_is_refused_without_waiting_for_its_writer(tmp_path: Path, line: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InvalidPipeline, match="'fifo' cannot be read: it is not a file"):
        load_text(tmp_path, WHOLE_PIPELINE + line + "\n")


@pytest.mark.parametrize(
    "content",
    [PLANTED, f"{PLANTED}\nother\n", f"{PLANTED}==\n", f"{PLANTED} more words\n", f"pl4nted\\n-pw={PLANTED}\n"],
)
def test_no_part_of_a_file_that_may_be_a_secret_is_suggested(tmp_path: Path, content: str) -> None:
    (tmp_path / "password").write_text(content)
    with pytest.raises(InvalidPipeline) as raised:
        load_text(tmp_path, WHOLE_PIPELINE + "kafka: {x: '${file:password:pl4nted}'}\n")
    (problem,) = raised.value.problems
    assert problem.message == "'password' has no property 'pl4nted'"


def test_command_config_gives_properties_and_the_address(folder: Path) -> None:
    text = WHOLE_PIPELINE.replace("bootstrap: localhost:9092\n", "command_config: client.properties\n")
    pipeline = load_text(folder, text + "kafka: {sasl.mechanism: SCRAM-SHA-512}\n")
    assert pipeline.bootstrap == "broker:9093"
    assert pipeline.kafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
    }, "`kafka` overrides the file; properties that have another key in a pipeline are left out"
    assert load_text(folder, WHOLE_PIPELINE + "command_config: client.properties\n").bootstrap == "localhost:9092"


@pytest.mark.parametrize("connector", ["moldau", "kafka"])
def test_an_address_may_have_a_protocol_in_front(folder: Path, connector: str) -> None:
    addresses = "SASL_SSL://broker:9093,SSL://[::1]:9093"
    (folder / "client.properties").write_text(f"bootstrap.servers={addresses}\n")
    text = WHOLE_PIPELINE.replace("bootstrap: localhost:9092\n", f"connector: {connector}\n")
    assert load_text(folder, text + "command_config: client.properties\n").bootstrap == addresses
    assert load_text(folder, text + f"bootstrap: {addresses}\n").bootstrap == addresses


def test_the_address_of_command_config_is_checked_where_it_is_used(folder: Path) -> None:
    (folder / "client.properties").write_text("bootstrap.servers=broker:9092, other\n")
    text, places = marked(
        WHOLE_PIPELINE.replace("bootstrap: localhost:9092\n", "command_config: «client.properties»\n")
    )
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, text)
    (problem,) = raised.value.problems
    assert problem.message == "bootstrap.servers in 'client.properties': 'other' is not host:port"
    assert [line_column(problem)] == places
    assert load(folder / "pipeline.yaml", bootstrap="here:9092", environ={}).bootstrap == "here:9092"
    load_text(folder, WHOLE_PIPELINE + "command_config: client.properties\n")


CONNECTED = """\
vars: {password: "${env:NOT_SET}", lake: "${env:ALSO_NOT_SET}"}
command_config: absent.properties
kafka:
  security.protocol: SASL_SSL
  sasl.password: ${password}
  ssl.key.password: ${file:absent}
  isolation.level: read_uncommitted
"""


def test_without_a_connection_no_secret_is_looked_up(folder: Path) -> None:
    text = WHOLE_PIPELINE.replace(
        "topic: big", "topic: big\n    options: {kafka.sasl.password: '${password}', kafka.acks: 1}"
    )
    pipeline = load(write(folder, text + CONNECTED), environ={}, connects=False)
    assert pipeline.kafka == {"isolation.level": "read_uncommitted"}
    assert pipeline.sinks[0].options == {"kafka.acks": "1"}
    with pytest.raises(InvalidPipeline) as raised:
        load(write(folder, text + CONNECTED), environ={})
    assert [problem.message for problem in raised.value.problems] == [
        "the environment has no variable 'NOT_SET'",
        "the environment has no variable 'ALSO_NOT_SET'",
        "'absent.properties' cannot be read: No such file or directory",
        "'absent' cannot be read: No such file or directory",
    ]


def test_a_missing_value_that_is_used_elsewhere_is_always_reported(folder: Path) -> None:
    text = WHOLE_PIPELINE.replace("topic: big", "topic: big${suffix}") + 'vars: {suffix: "${env:NOT_SET}"}\n'
    with pytest.raises(InvalidPipeline, match="no variable 'NOT_SET'"):
        load(write(folder, text), environ={}, connects=False)


def test_a_variable_without_a_value_is_reported_only_where_it_is_used(folder: Path) -> None:
    text = WHOLE_PIPELINE + "vars:\n  password:\nkafka: {sasl.password: '${password}'}\n"
    assert load(write(folder, text), environ={}, connects=False).kafka == {}
    assert load(write(folder, text), {"password": PLANTED}, environ={}).kafka == {"sasl.password": PLANTED}
    with pytest.raises(InvalidPipeline, match="the variable 'password' has no value"):
        load(write(folder, text), environ={})
    with pytest.raises(InvalidPipeline, match="the variable 'password' has no value"):
        load(write(folder, text.replace("topic: big", "topic: 'big${password}'")), environ={}, connects=False)


def test_a_missing_value_behind_many_variables_is_reported_once(folder: Path) -> None:
    doubling = "".join(f"  a{number}: '${{a{number - 1}}}${{a{number - 1}}}'\n" for number in range(1, 31))
    text = WHOLE_PIPELINE.replace("topic: big", "topic: 'big${a30}'") + f"vars:\n  a0: ${{env:NOT_SET}}\n{doubling}"
    with pytest.raises(InvalidPipeline) as raised:
        load(write(folder, text), environ={}, connects=False)
    assert [problem.message for problem in raised.value.problems] == ["the environment has no variable 'NOT_SET'"]


def test_no_repr_shows_a_secret(folder: Path) -> None:
    options = f"options: {{kafka.sasl.password: {PLANTED}}}"
    text = WHOLE_PIPELINE.replace("    topic: orders\n", f"    topic: orders\n    {options}\n") + f"    {options}\n"
    pipeline = load_text(folder, text + "command_config: client.properties\n")
    source, sink = pipeline.sources["orders"], pipeline.sinks[0]
    assert isinstance(source, TopicSource)
    assert isinstance(sink, TopicSink)
    assert sink.options["kafka.sasl.password"] == PLANTED
    assert PLANTED not in repr(pipeline) + repr(source) + repr(sink)
    assert pipeline.masked(f"failed with {PLANTED}!") == f"failed with {MASK}!"
    assert pipeline.masked(JAAS) == MASK


@pytest.mark.parametrize(
    "name", ["fs.s3a.secret.key", "fs.s3a.access.key", "fs.azure.account.key.shop.dfs.core.windows.net"]
)
def test_secret_settings_of_spark_are_masked(folder: Path, name: str) -> None:
    pipeline = load_text(folder, WHOLE_PIPELINE + f"spark: {{spark.hadoop.{name}: {PLANTED}}}\n")
    assert pipeline.spark[f"spark.hadoop.{name}"] == PLANTED
    assert PLANTED not in repr(pipeline)
    assert pipeline.masked(f"refused {PLANTED}") == f"refused {MASK}"


@pytest.mark.parametrize(
    "line",
    [
        f"kafka: {{sasl.password: {PLANTED}, bootstrap.servers: x}}",
        f"kafka: {{bootstrap.servers: x, 'ssl.key.password': \"{PLANTED}\"}}",
        f"kafka: {{bootstrap.servers: x, sasl.jaas.config: 'a required password=\"{PLANTED}\";'}}",
        f"kafka: {{bootstrap.servers: x, fs.s3a.session.token: {PLANTED}}}",
    ],
)
def test_a_shown_line_of_the_file_hides_the_password_in_it(folder: Path, line: str) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, WHOLE_PIPELINE + line + "\n")
    shown = raised.value.render()
    assert "'bootstrap.servers' cannot be set under 'kafka'" in shown
    assert "kafka: {" in shown
    assert PLANTED not in shown


def test_outside_of_brackets_a_password_is_the_rest_of_its_line(folder: Path) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, WHOLE_PIPELINE + f"kafka:\n  kafka.sasl.password: a,b}}{PLANTED} # {{now}}\n")
    shown = raised.value.render()
    assert "\n   11 |   kafka.sasl.password: *****" in shown
    assert PLANTED not in shown


def test_secrets_are_masked_longest_first() -> None:
    properties = {
        "sasl.jaas.config": JAAS,
        "ssl.key.password": PLANTED + "-more",
        "sasl.username": "ann",
        "acks": "all",
    }
    secrets = secret_values(properties)
    assert secrets == {JAAS, PLANTED, PLANTED + "-more"}
    assert masked(f"{PLANTED}-more and {PLANTED} of ann", secrets) == f"{MASK} and {MASK} of ann"
    assert secret_values({"sasl.jaas.config": f"not JAAS {PLANTED}"}) == {f"not JAAS {PLANTED}"}
    assert masked("a text", {"a"}) == "a text", "too short to be distinguished from other text"
