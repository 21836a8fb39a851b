"""Every kind of mistake in a pipeline file is one problem, with a one-line message at the wrong word."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_yaml import WHOLE_PIPELINE, line_column, load_text, marked, write

from moldau.pipelines.problems import InvalidPipeline, Problem, render
from moldau.pipelines.reading.loading import load
from moldau.pipelines.reading.steps import function_problem
from moldau.pipelines.spec import Place, TopicSource

TOP = "name: shop\n"
SOURCES = "sources:\n  orders: {topic: orders, schema: id string}\n  users: {topic: users, schema: id string}\n"
SINKS = "sinks:\n  - {from: orders, console: true}\n"


def source(text: str) -> str:
    """Return a pipeline whose only source has these lines."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return f"{TOP}sources:\n  orders:\n{lines}{SINKS}"


def step(text: str) -> str:
    return f"{TOP}{SOURCES}steps:\n  - name: s\n" + "".join(f"    {line}\n" for line in text.splitlines()) + SINKS


def shared(text: str) -> str:
    """Return a pipeline in which a sink with these lines follows one named one-two."""
    lines = (["from: orders"] if "from:" not in text else []) + ["topic: y", *text.splitlines()]
    first = f"{TOP}{SOURCES}sinks:\n  - {{name: one-two, from: orders, topic: x}}\n"
    return first + f"  - {lines[0]}\n" + "".join(f"    {line}\n" for line in lines[1:])


def same_table(first: str, second: str, paths: tuple[str, str] = ("t", "./x/../t")) -> str:
    """Return a pipeline in which two sinks in these modes write the same table, at these paths."""
    modes = [f"mode: {mode}, keys: [id]" if mode == "upsert" else f"mode: {mode}" for mode in (first, second)]
    return (
        f"{TOP}{SOURCES}sinks:\n"
        f"  - {{name: first, from: orders, table: '{paths[0]}', format: delta, {modes[0]}}}\n"
        f"  - {{name: second, from: users, table: «'{paths[1]}'», format: delta, {modes[1]}}}\n"
    )


def sink(text: str) -> str:
    return f"{TOP}{SOURCES}sinks:\n  - from: orders\n" + "".join(f"    {line}\n" for line in text.splitlines())


TOPIC = "topic: orders\nschema: id string, ts timestamp\n"

WRONG = {
    # the file as a whole
    "empty": ("«»", "the file is empty"),
    "only comments": ("«»# nothing\n# here\n", "the file is empty"),
    "a list": ("«»- a\n- b\n", "a pipeline is a mapping"),
    "a text": ("«»hello\n", "a pipeline is a mapping"),
    "two documents": (WHOLE_PIPELINE + "«»---\nname: b\n", "a second YAML document"),
    "tab": ("name: x\nsources:\n«»\ta: 1\n", "a tab is not allowed here"),
    "second colon": ("name: a«»: b\n", "a second ':' in one value"),
    "unclosed quote": ("name: «»'abc\n", "not YAML"),
    "unclosed bracket": ("name: «»[a, b\n", "the '[' of line 1 is not closed"),
    "unclosed brace": (f"{TOP}sources:\n  a: «»{{topic: a, schema: id string\n  b: {{topic: b}}\n{SINKS}",
                       "the '{' of line 3 is not closed"),
    "unclosed brace before a list": (f"{TOP}{SOURCES}sinks:\n  - «»{{from: orders, topic: x\n  - {{from: orders}}\n",
                                     "the '{' of line 6 is not closed"),
    "control character": ("name: a«»\x07b\n", "U+0007"),
    "key twice": (WHOLE_PIPELINE + "«name»: again\n", "the key 'name' occurs twice, first on line 1"),
    "inner key twice": (source("topic: a\n«topic»: b\nformat: text"), "the key 'topic' occurs twice"),
    "tag": (WHOLE_PIPELINE.replace("name: shop", "name: «»!!python/object:os.system shop"),
            "is not used in a pipeline file"),
    "alias without anchor": ("name: «»*gone\n", "the alias *gone has no anchor before it"),
    "alias in itself": ("name: &a [«»*a]\n", "is inside the anchor"),
    "merge of a text": (source("<<: «abc»\n" + TOPIC), "<< merges a mapping"),
    "list as key": ("? «»[a]\n: 1\n", "a key must be a text"),
    # the top
    "no name": ("«»" + WHOLE_PIPELINE.replace("name: shop\n", ""), "missing key 'name'"),
    "bad name": (WHOLE_PIPELINE.replace("shop", "«My» Shop"), "'My Shop' cannot be the pipeline's name"),
    "name with a slash": (WHOLE_PIPELINE.replace("shop", "«a»/b"), "'a/b' cannot be the pipeline's name"),
    "name without value": (WHOLE_PIPELINE.replace("name: shop", "«name»:"), "'name' has no value"),
    "name is a list": (WHOLE_PIPELINE.replace("name: shop", "«name»: [a]"), "'name' must be a text, not a list"),
    "unknown key": (WHOLE_PIPELINE + "«sink»: []\n", "unknown key 'sink', did you mean 'sinks'?"),
    "unknown key by synonym": (WHOLE_PIPELINE + "«brokers»: a:1\n", "unknown key 'brokers', did you mean 'bootstrap'?"),
    "bootstrap": (WHOLE_PIPELINE.replace("localhost:9092", "«localhost»"), "'localhost' is not host:port"),
    "bootstrap port": (WHOLE_PIPELINE.replace("localhost:9092", "«localhost»:99999"), "is not host:port"),
    "trigger": (WHOLE_PIPELINE + "trigger: «soon»\n", "'soon' is not a duration"),
    "connector": (WHOLE_PIPELINE + "connector: «kafak»\n", "'kafak' is not a connector, did you mean 'kafka'?"),
    "kafka address": (WHOLE_PIPELINE + "kafka:\n  «bootstrap.servers»: a:1\n", "give the address with 'bootstrap'"),
    "kafka prefix": (WHOLE_PIPELINE + "kafka: {«kafka.acks»: all}\n", "write 'acks'"),
    "kafka is a text": (WHOLE_PIPELINE + "kafka: «abc»\n", "'kafka' must be a mapping, not a text"),
    "kafka value": (WHOLE_PIPELINE + "kafka: {«a»: [1]}\n", "'kafka.a' must be a text"),
    "spark prefix": (WHOLE_PIPELINE + "spark: {«sql.x»: 1}\n", "did you mean 'spark.sql.x'?"),
    "no sources": (f"«»{TOP}{SINKS}", "missing key 'sources'"),
    "empty sources": (f"{TOP}«sources»: {{}}\n{SINKS}", "there are no sources"),
    "sources as list": (f"{TOP}«sources»:\n  - topic: a\n{SINKS}", "'sources' must be a mapping, not a list"),
    "no sinks": (f"«»{TOP}{SOURCES}", "missing key 'sinks'"),
    "empty sinks": (f"{TOP}{SOURCES}«sinks»: []\n", "there are no sinks"),
    "sinks as mapping": (f"{TOP}{SOURCES}«sinks»: {{a: b}}\n", "'sinks' must be a list"),
    "sink is a text": (f"{TOP}{SOURCES}sinks: [«abc»]\n", "sink 1 must be a mapping"),
    "vars is a list": (WHOLE_PIPELINE + "vars: «»[a]\n", "'vars' must be a mapping"),
    # sources
    "source without kind": (f"{TOP}sources:\n  «orders»: {{format: text}}\n{SINKS}", "where does it read from?"),
    "source is a text": (f"{TOP}sources:\n  «orders»: abc\n{SINKS}", "'orders' must be a mapping"),
    "topic and topics": (source("topic: a\n«topics»: [b]\nformat: text"), "'topic' and 'topics' do not go together"),
    "topic and file": (source("topic: a\n«file»: b.csv\nformat: text"), "'topic' and 'file' do not go together"),
    "misspelt kind": (source("«topik»: a"), "source 'orders': unknown key 'topik', did you mean 'topic'?"),
    "path": (source("«path»: a.csv"), "unknown key 'path', did you mean 'file'?"),
    "misspelt key": (source(TOPIC + "«fromat»: json"), "unknown key 'fromat', did you mean 'format'?"),
    "unknown key without a similar one": (source(TOPIC + "«zzz»: json"), "unknown key 'zzz'"),
    "topic name": (source("topic: «my» orders\nformat: text"), "not a topic's name"),
    "topics name": (source("topics: [a, «b/c»]\nformat: text"), "not a topic's name"),
    "topics twice": (source("topics: [a, «a»]\nformat: text"), "'a' is listed twice in 'topics'"),
    "topics empty": (source("«topics»: []\nformat: text"), "'topics' is an empty list"),
    "topics nested": (source("topics: [a, «»[b]]\nformat: text"), "'topics' must be a list of texts"),
    "pattern": (source("pattern: «orders»-(\nformat: text"), "not a regular expression"),
    "pattern of two lines": (source('pattern: «"[z-»\\n]"\nformat: text'), r"bad character range z-\n at position 1"),
    "pattern with a control": (source('pattern: «"[z-»\\e]"\nformat: text'), r"bad character range z-\x1b at position"),
    "format": (source("topic: a\nformat: «jsno»\nschema: a int"),
               "'jsno' is not a format of records, did you mean 'json'?"),
    "format of files": (source("topic: a\nformat: «parquet»\nschema: a int"), "'parquet' is not a format of records"),
    "json without schema": (f"{TOP}sources:\n  «orders»:\n    topic: a\n{SINKS}", "format json needs a schema"),
    "csv without schema": (f"{TOP}sources:\n  «orders»: {{topic: a, format: csv}}\n{SINKS}",
                           "format csv needs a schema"),
    "text with schema": (source("topic: a\nformat: text\n«schema»: a int"), "its one column is 'value'"),
    "avro without file": (f"{TOP}sources:\n  «orders»: {{topic: a, format: avro}}\n{SINKS}", "needs 'schema_file'"),
    "avro with schema": (source("topic: a\nformat: avro\nschema_file: good.avsc\n«schema»: a int"),
                         "format avro takes its schema from 'schema_file'"),
    "avro schema missing": (source("topic: a\nformat: avro\nschema_file: «gone.avsc»"), "there is no file 'gone.avsc'"),
    "avro schema broken": (source("topic: a\nformat: avro\nschema_file: «bad.avsc»"), "the Avro schema cannot be read"),
    "both schemas": (source("topic: a\nschema: a int\n«schema_file»: good.ddl"), "do not go together"),
    "framing": (source(TOPIC + "«framing»: confluent"), "'framing' is for format avro"),
    "framing value": (source("topic: a\nformat: avro\nschema_file: good.avsc\nframing: «glue»"), "is not a framing"),
    "start word": (source(TOPIC + "start: «earlyest»"), "did you mean 'earliest'?"),
    "start time": (source(TOPIC + "start: «2026-13-45»"), "cannot start at '2026-13-45'"),
    "start list": (source(TOPIC + "«start»: [1]"), "'start' must be earliest, latest, a time or offsets"),
    "start partition": (source(TOPIC + "start: {«x»: 1}"), "'x' is not a partition"),
    "start without offsets": (source(TOPIC + "start: «»{}"), "there are no offsets"),
    "start without offsets of a topic": (source(TOPIC + "start: {orders: «»{}}"), "there are no offsets"),
    "start offset": (source(TOPIC + "start: {0: «soon»}"), "an offset is a number, earliest or latest"),
    "start topic": (source(TOPIC + "start: {«order»: {0: 1}}"), "it does not read 'order', did you mean 'orders'?"),
    "start mixed": (source("topics: [a, b]\nformat: text\nstart: {a: {0: 1}, b: «7»}"),
                    "offsets are given as {partition: offset}"),
    "start of several": (source("topics: [a, b]\nformat: text\nstart: «»{0: 1}"), "offsets are given by topic"),
    "headers": (source(TOPIC + "headers: «maybe»"), "'headers' must be true or false, not 'maybe'"),
    "headers quoted": (source(TOPIC + "headers: «\"true\"»"), "'headers' must be true or false"),
    "watermark text": (source(TOPIC + "watermark: «ts»"), "'watermark' must be a mapping"),
    "watermark delay": (source(TOPIC + "watermark: {column: ts, delay: «10»}"), "'10' is not a duration"),
    "watermark no delay": (source(TOPIC + "«watermark»: {column: ts}"), "missing key 'delay'"),
    "watermark no column": (source(TOPIC + "«watermark»: {delay: 1s}"), "missing key 'column'"),
    "watermark key": (source(TOPIC + "watermark: {column: ts, delay: 1s, «dealy»: 1s}"), "did you mean 'delay'?"),
    "deduplicate": (source(TOPIC + "«deduplicate»: [id]"), "'deduplicate' needs a watermark"),
    "dead letter name": (source(TOPIC + "dead_letter: «a»/b"), "not a topic's name"),
    "dead letter loop": (source(TOPIC + "dead_letter: «orders»"), "it would read its own dead letters from 'orders'"),
    "dead letter by pattern": (source("pattern: «orders».*\nformat: text"),
                               "would read its own dead letters from 'orders.dead'"),
    "dead letter by topics": (source("«topics»: [orders, orders.dead]\nformat: text"),
                              "would read its own dead letters from 'orders.dead'"),
    "dead letter too long": (source(f"topic: {'a' * 249}\nformat: text").replace("  orders:", "  «orders»:"),
                             "the default dead-letter topic is not a valid topic name"),
    "dead letter of raw": (source("topic: a\nformat: raw\n«dead_letter»: b"), "every record fits"),
    "dead letter list": (source(TOPIC + "«dead_letter»: [a]\nfail_above: 1%"), "must be a topic, fail or drop"),
    "fail_above of raw": (source("topic: a\nformat: raw\n«fail_above»: 1%"), "every record fits"),
    "a percentage without its sign": (source(TOPIC + "fail_above: «10»"), "'10' is not a percentage"),
    "a percentage above 100": (source(TOPIC + "fail_above: «101%»"), "'101%' is not a percentage"),
    "tombstone of a file": (source("file: data/\nformat: text\n«tombstone»: drop"), "is for topics, not for files"),
    "misspelt tombstone": (source(TOPIC + "tombstone: «rows»"), "'rows' is not a tombstone, did you mean 'row'?"),
    "bad tombstone of raw": (source("topic: a\nformat: raw\ntombstone: «bad»"), "every record fits"),
    "no such watermark column": (
        source("topic: a\nschema: id string, at timestamp\nwatermark: {column: «att», delay: 1 minute}"),
        "there is no column att, did you mean 'at'?",
    ),
    "fail_above beside fail": (source(TOPIC + "dead_letter: fail\n«fail_above»: 1%"), "does not go with"),
    "real-time trigger": (WHOLE_PIPELINE + "trigger: «realTime»\n", "real-time and continuous mode"),
    "real-time trigger of a sink": (sink("topic: x\n«trigger»: {realTime: 5 minutes}"), "real-time and continuous"),
    "max per trigger": (source(TOPIC + "max_per_trigger: «0»"), "must be a whole number of at least 1, not '0'"),
    "watch of a topic": (source(TOPIC + "«watch»: true"), "'watch' is for files"),
    "options": (source(TOPIC + "«options»: [a]"), "'options' must be a mapping, not a list"),
    # files and tables
    "file missing": (source("file: «gone.csv»"), "there is no file 'gone.csv'"),
    "glob matches nothing": (source("file: «gone-»*.csv"), "no file matches 'gone-*.csv'"),
    "file format": (source("file: «data»"), "missing key 'format'"),
    "file avro": (source("file: users.csv\nformat: «avro»"), "'avro' is not a format of files"),
    "watermark of a file": (source("file: users.csv\n«watermark»: {column: ts, delay: 1s}"), "is for streams"),
    "deduplicate of a file": (source("file: users.csv\n«deduplicate»: [a]"), "is for streams"),
    "watched without schema": (f"{TOP}sources:\n  «orders»: {{file: data, format: csv, watch: true}}\n{SINKS}",
                               "files that are watched need a schema"),
    "watched deduplicate": (source("file: users.csv\nschema: a int\nwatch: true\n«deduplicate»: [a]"),
                            "needs a watermark"),
    "text file with schema": (source("file: users.csv\nformat: text\n«schema»: a int"), "its one column is 'value'"),
    "text file by its name": (source("file: notes.txt\n«schema»: id int, x int"), "its one column is 'value'"),
    "start of a file": (source("file: users.csv\n«start»: latest"), "'start' is for topics, not for files"),
    "table missing": (source("table: «lake»/gone"), "there is no table 'lake/gone'"),
    "table format": (source("table: data\nformat: «detla»"),
                     "'detla' is not a format of tables, did you mean 'delta'?"),
    "table schema": (source("table: data\n«schema»: a int"), "a table has its own"),
    "table watermark": (source("table: data\n«watermark»: {column: a, delay: 1s}"), "a table is not a stream"),
    "table headers": (source("table: data\n«headers»: true"), "'headers' is for topics, not for tables"),
    # names
    "view with a dash": (WHOLE_PIPELINE.replace("  orders:", "  «big-orders»:").replace("from: orders",
                                                                                        "from: big-orders"),
                         "'big-orders' cannot be a view: use letters, digits and _, did you mean 'big_orders'?"),
    "view with a reserved prefix": (WHOLE_PIPELINE.replace("  orders:", "  «_x»:").replace("from: orders", "from: _x"),
                     "begin with _ are Moldau's"),
    "reserved word": (WHOLE_PIPELINE.replace("  orders:", "  «Select»:").replace("from: orders", "from: Select"),
                      "SQL reserves this word"),
    "step like a source": (step("sql: select 1").replace("name: s\n", "name: «Orders»\n"),
                           "the name 'Orders' is used twice (as 'orders': SQL ignores case)"),
    "step twice": (step("sql: select 1").replace("sinks:", "  - {name: «s», sql: select 2}\nsinks:"), "is used twice"),
    # steps
    "steps as mapping": (f"{TOP}{SOURCES}«steps»: {{a: b}}\n{SINKS}", "'steps' must be a list"),
    "step without name": (f"{TOP}{SOURCES}steps:\n  - «sql»: select 1\n{SINKS}", "step 1: missing key 'name'"),
    "step without work": (step("").replace("name: s\n", "name: «s»\n"), "what does it do? Give 'sql' or 'python'"),
    "query": (step("«query»: select 1"), "unknown key 'query', did you mean 'sql'?"),
    "sql and python": (step("sql: select 1\n«python»: detect:good"), "'sql' and 'python' do not go together"),
    "empty sql": (step('sql: «""»'), "'sql' is empty"),
    "sql as list": (step("«sql»: [a]"), "'sql' must be a text, not a list"),
    "sql with inputs": (step("sql: select 1\n«inputs»: [orders]"), "'inputs' is for python steps"),
    "python notation": (step("python: «detect.good»\ninputs: [orders]"), "is not module:function"),
    "python module": (step("python: «detekt»:good\ninputs: [orders]"), "no module 'detekt.py' beside"),
    "installed module": (step("python: «json»:loads\ninputs: [orders]"), "no module 'json.py' beside"),
    "dotted module": (step("python: «json.decoder»:scan\ninputs: [orders]"), "no module 'json/decoder.py' beside"),
    "python function": (step("python: detect:«goood»\ninputs: [orders]"), "no function 'goood', did you mean 'good'?"),
    "python syntax": (step("python: «broken»:good\ninputs: [orders]"), "broken.py, line 2"),
    "no inputs": (step("python: detect:good").replace("name: s\n", "name: «s»\n"), "missing key 'inputs'"),
    "unknown input": (step("python: detect:good\ninputs: [«order»]"), "unknown input 'order', did you mean 'orders'?"),
    "input is itself": (step("python: detect:good\ninputs: [«s»]"), "the step 's' is not above this one"),
    "later input": (step("python: detect:good\ninputs: [«t»]").replace("sinks:",
                    "  - {name: t, sql: select 2}\nsinks:"),
                    "the step 't' is not above this one"),
    "args list": (step("python: detect:good\ninputs: [orders]\n«args»: [1]"), "'args' must be a mapping"),
    "args name": (step("python: detect:good\ninputs: [orders]\nargs: {«a-b»: 1}"), "cannot be an argument's name"),
    "args integer": (step(f"python: detect:good\ninputs: [orders]\nargs: {{a: [«{'9' * 39}»]}}"),
                     "a whole number has at most 38 digits, and this one 39"),
    "step deduplicate": (step("sql: select 1\n«deduplicate»: [a]"), "'deduplicate' needs a watermark"),
    # sinks
    "sink without from": (f"{TOP}{SOURCES}sinks:\n  - «topic»: x\n", "sink 1: missing key 'from'"),
    "unknown from": (f"{TOP}{SOURCES}sinks:\n  - from: «order»\n    topic: x\n",
                     "unknown view 'order', did you mean 'orders'?"),
    "unknown view without a similar one": (f"{TOP}{SOURCES}sinks:\n  - from: «zzz»\n    topic: x\n",
                                           "unknown view 'zzz'"),
    "sink without target": (f"{TOP}{SOURCES}sinks:\n  - «from»: orders\n", "where does it write to?"),
    "two targets": (sink("topic: x\n«table»: y"), "'topic' and 'table' do not go together"),
    "topic and route": (sink("topic: x\n«route»: y"), "'topic' and 'route' do not go together"),
    "sink topic name": (sink("topic: «a»/b"), "not a topic's name"),
    "sink to an internal topic": (sink("topic: «__consumer_offsets»"), "belongs to the cluster"),
    "loop": (sink("topic: «users»"), "which source 'users' reads: the pipeline would feed itself"),
    "sink mode": (sink("topic: x\nmode: «upsert»"), "'upsert' is not a mode of a topic"),
    "sink partitions": (sink("topic: x\npartitions: «-1»"), "must be a whole number of at least 1"),
    "too many partitions": (sink("topic: x\npartitions: «2147483648»"), "'partitions' is at most 2147483647"),
    "sink avro": (sink("topic: x\nformat: avro").replace("from:", "«from»:"), "needs 'schema_file'"),
    "sink schema file": (sink("topic: x\n«schema_file»: good.avsc"), "'schema_file' is for format avro"),
    "sink avro value": (sink("topic: x\nformat: avro\nschema_file: good.avsc\n«value»: a"),
                        "does not go with format avro"),
    "sink headers": (sink("topic: x\n«headers»: [a]"), "'headers' must be a mapping, not a list"),
    "sink trigger": (sink("topic: x\ntrigger: «often»"), "'often' is not a duration"),
    "with an unknown sink": (shared("with: «one»"), "there is no sink 'one' above it, did you mean 'one-two'?"),
    "with an unknown sink and a trigger": (shared("with: «one»\ntrigger: 1 second"), "there is no sink 'one' above it"),
    "with itself": (shared("name: two\nwith: «two»"), "there is no sink 'two' above it"),
    "with another view": (shared("from: users\nwith: «one-two»"), "'one-two' is made from 'orders'"),
    "with one in another mode": (shared("mode: update\nwith: «one-two»"), "only sinks in mode append"),
    "with a trigger": (shared("with: one-two\n«trigger»: 1 second"), "put the 'trigger' on 'one-two', whose query"),
    "with one that shares": (shared("name: b\nwith: one-two") + "  - {from: orders, topic: z, with: «b»}\n",
                             "'b' itself shares the query of 'one-two'"),
    "with names that are too long together": (
        shared(f"name: {'b' * 100}\nwith: one-two").replace("one-two", "a" * 100).replace("sinks:", "«sinks»:"),
        "the names of sinks that share a query are too long together: 201 characters, at most 200"),
    "sink partitions of a route": (sink("route: name\n«partitions»: 3"), "'partitions' goes with 'topic'"),
    "sink keys of a topic": (sink("topic: x\n«keys»: [a]"), "'keys' is for tables, not for topics"),
    "sink name": (sink("topic: x\nname: «a»/b"), "cannot be a sink's name"),
    "option instead of start": (source(TOPIC + "options: {«startingoffsets»: latest}"),
                                "the option 'startingOffsets' is given by the key 'start': leave it out"),
    "option instead of topic": (source(TOPIC + "options: {«subscribe»: x}"),
                                "the option 'subscribe' is given by the key 'topic': leave it out"),
    "sink of dead letters": (sink("topic: x\nname: «Orders.dead-letters»"),
                             "'Orders.dead-letters' is the query of the dead letters of source 'orders'"),
    "sink twice": (sink("topic: x\nname: a").replace("sinks:", "sinks:\n  - {from: users, console: true, name: A}")
                   .replace("name: a\n", "name: «a»\n"), "the name 'a' is used twice"),
    "sink twice by default": (sink("topic: x").replace("sinks:", "sinks:\n  - {from: orders, topic: x}")
                              .replace("- from", "- «from»"), "the name 'orders-to-x' is used twice"),
    "key of a table": (sink("table: x\n«key»: a"), "'key' is for topics, not for tables"),
    "misspelt order": (
        sink("table: x\nkeys: [a]\nmode: upsert\nformat: delta\noptions: {«orderby»: a}"),
        "there is no option 'orderby', did you mean 'order_by'?",
    ),
    "misspelt option of the connector": (
        sink("topic: x\noptions: {«deliveryGuarante»: exactly-once}"),
        "there is no option 'deliveryGuarante', did you mean 'deliveryGuarantee'?",
    ),
    "option twice": (
        sink("table: x\nkeys: [a]\nmode: upsert\nformat: delta\noptions: {order_by: a, «ORDER_BY»: b}"),
        "the option 'order_by' is given twice",
    ),
    "topic among the options of a route": (
        sink("route: id\noptions: {«Topic»: x}"),
        "the option 'topic' would replace the topics that 'route' chooses",
    ),
    "topic among the options of a topic": (
        sink("topic: y\noptions: {«topic»: x}"),
        "the option 'topic' is given by the key 'topic'",
    ),
    "option beside the keys": (
        sink("table: x\nkeys: [a]\nmode: upsert\nformat: delta\n«order_by»: a"),
        "unknown key 'order_by', which is an option",
    ),
    "append and upsert into one table": (same_table("append", "upsert"), "it writes to the table of sink 'first'"),
    "upsert and append into one table": (same_table("upsert", "append"), "(the modes are upsert and append)"),
    "two upserts into one table": (same_table("upsert", "upsert"), "only sinks in mode append can share a table"),
    "append and complete into one table": (same_table("append", "complete"), "(the modes are append and complete)"),
    "two upserts into one bucket": (same_table("upsert", "upsert", ("s3://b/t", "s3://b/t/")), "share a table"),
    "with a scheme of Hadoop": (same_table("upsert", "upsert", ("s3a://b/t", "S3://b//./t")), "share a table"),
    "with a file": (same_table("upsert", "upsert", ("file:///t/", "/t")), "share a table"),
    "keys without upsert": (sink("table: x\n«keys»: [a]"), "'keys' is for 'mode: upsert'"),
    "upsert without keys": (sink("table: x\nformat: delta\nmode: «upsert»"), "mode upsert needs 'keys'"),
    "upsert without delta": (sink("table: x\nkeys: [a]\nmode: «upsert»"), "mode upsert needs 'format: delta'"),
    "upsert on iceberg": (sink("table: x\nkeys: [a]\nmode: upsert\nformat: «iceberg»"), "needs 'format: delta'"),
    "table mode": (sink("table: x\nmode: «update»"), "'update' is not a mode of a table"),
    "console false": (sink("console: «false»"), "'console' can only be true"),
    "console format": (sink("console: true\n«format»: json"), "'format' is not for the console"),
    # variables
    "unknown variable": (sink("topic: big-«${regoin}»") + "vars: {region: eu}\n",
                         "unknown variable 'regoin', did you mean 'region'?"),
    "unclosed variable": (sink("table: a«${»region") + "vars: {region: eu}\n", "'${' without a '}'"),
    "unknown environment variable": (sink("table: a«${env:HOEM}»"),
                                     "the environment has no variable 'HOEM', did you mean 'HOME'?"),
    "variable without value": (sink("table: x") + "vars: {«region»: }\n", "the variable 'region' has no value"),
    "variable is a list": (sink("table: x") + "vars: {region: «»[a]}\n", "the variable 'region' must be a text"),
    "variable name": (sink("table: x") + "vars: {«a b»: c}\n", "cannot be a variable's name"),
    "variable of a later one": (sink("table: x") + "vars: {a: 'x«${b}»', b: y}\n", "is used above the line"),
    "variable with a bad value": (sink("topic: x\npartitions: «${n}»") + "vars: {n: many}\n", "not 'many'"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder with the files that the pipelines above use."""
    (tmp_path / "users.csv").write_text("id\n1\n")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "good.avsc").write_text('"string"')
    (tmp_path / "bad.avsc").write_text("{")
    (tmp_path / "good.ddl").write_text("a int")
    (tmp_path / "detect.py").write_text("def good(frame): return frame\n")
    (tmp_path / "broken.py").write_text("def good(frame):\nreturn\n")
    return tmp_path


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_problem_at_its_word(case: tuple[str, str], folder: Path) -> None:
    """Only one: no mistake causes further problems, and to fix the word is enough."""
    text, places = marked(case[0])
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, text)
    (problem,) = raised.value.problems
    assert line_column(problem) == places[0], problem
    assert case[1] in problem.message


def test_a_wrong_delay_and_a_wrong_column_of_a_watermark_are_both_reported(folder: Path) -> None:
    text, places = marked(
        source("topic: a\nschema: id string, at timestamp\nwatermark: {column: «ta», delay: «1 minuet»}")
    )
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, text)
    assert [line_column(problem) for problem in raised.value.problems] == places


MODULE = """
import helping
if True:
    def kinds(events): return events
def other(events):
    kind = 5
    def kindz_inside(row): return row
    return events
def made():
    global bound
    bound = other
"""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("kinds", None),
        ("bound", None),
        ("helping", None),
        ("kindz", "kinds.py has no function 'kindz', did you mean 'kinds'?"),
        ("kind", "kinds.py has no function 'kind', did you mean 'kinds'?"),
        ("kindz_inside", "kinds.py has no function 'kindz_inside'"),
    ],
)
def test_only_functions_of_the_module_itself_count(function: str, problem: str | None, tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(MODULE)
    assert function_problem("kinds", function, tmp_path) == problem


def test_all_mistakes_are_reported_in_the_order_of_the_file(folder: Path) -> None:
    text, places = marked(
        "name: «My» Shop\n«kafak»: {}\nsources:\n  orders:\n    topic: «a»/b\n    «schem»: id int\n    format: text\n"
        "steps:\n  - name: «a-b»\n    sql: select «${x}»\n"
        "sinks:\n  - from: «ordrs»\n    topic: «c»/d\n    mode: «apend»\n"
    )
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, text)
    assert [line_column(problem) for problem in raised.value.problems] == places


@pytest.mark.parametrize(
    ("inside", "suggested"), [("topic: x\nschema: a int\nwatermrk: 1", "watermark"), ("table: data\nwatermrk: 1", None)]
)
def test_no_key_is_suggested_that_would_be_refused(inside: str, suggested: str | None, folder: Path) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        load_text(folder, source(inside))
    (problem,) = raised.value.problems
    suggestion = f", did you mean '{suggested}'?" if suggested else ""
    assert problem.message.endswith(f"unknown key 'watermrk'{suggestion}")
    assert "watermark" not in (problem.hint or "")


def test_sinks_in_mode_append_may_share_a_table(folder: Path) -> None:
    text, _ = marked(same_table("append", "append"))
    assert [sink.name for sink in load_text(folder, text).sinks] == ["first", "second"]


@pytest.mark.parametrize("paths", [("s3://b/t", "s3://b/T"), ("s3://b/t", "gs://b/t"), ("/b/t", "s3://b/t")])
def test_sinks_may_upsert_into_different_tables(paths: tuple[str, str], folder: Path) -> None:
    text, _ = marked(same_table("upsert", "upsert", paths))
    assert [sink.name for sink in load_text(folder, text).sinks] == ["first", "second"]


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes("name: ü\nother: ".encode() + b"\xff\n")
    with pytest.raises(InvalidPipeline) as raised:
        load(path)
    assert str(raised.value) == f"{path}:2:8: the file is not UTF-8: byte 0xff"


def aliases_of_aliases(first: str, following: str) -> str:
    """Return lines in which each repeats the one before it, as often or as deep as X is in `following`."""
    lines = [
        f"{new}: &{new} " + following.replace("X", f"*{old}") for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join([f"a: &a {first}", *lines])


HOSTILE = {
    "brackets": ("a: " + "[" * 500, "nested more than 32 deep"),
    "lists": ("- " * 500, "nested more than 32 deep"),
    "size": ("#" * 300_000, "the file is larger than 256 KiB"),
    "many aliases": (aliases_of_aliases("[1, 1]", "[X, X, X, X, X, X, X]"), "more than 20000 values, with aliases"),
    "many merges": (
        f"a: &a {{{', '.join(f'k{n}: 1' for n in range(100))}}}\nb:\n  <<: [{', '.join(['*a'] * 500)}]\n",
        "more than 20000 values, with aliases",
    ),
    "deep aliases": (aliases_of_aliases("[1]", "[[[[[[[[[[X]]]]]]]]]]"), "nested more than 32 deep"),
    "variables": (
        WHOLE_PIPELINE
        + "vars:\n  v0: 0123456789\n"
        + "".join(f"  v{n + 1}: '${{v{n}}}${{v{n}}}'\n" for n in range(30)),
        "with variables replaced, the file grows by more than",
    ),
}


@pytest.mark.parametrize("case", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused(case: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match=case[1]):
        load_text(tmp_path, case[0])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        load(tmp_path / "gone.yaml")
    assert raised.value.render() == (
        f"there is no pipeline file {tmp_path}/gone.yaml\n      = 'moldau pipeline init' writes one to begin with"
    )
    write(tmp_path, WHOLE_PIPELINE)
    with pytest.raises(InvalidPipeline) as raised:
        load(tmp_path)
    assert raised.value.render() == f"{tmp_path} is a directory\n      = did you mean {tmp_path}/pipeline.yaml?"


def test_unknown_variables_of_the_command_line_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidPipeline, match="laek is given a value, but this file has no such variable, did you mean 'lake'"
    ):
        load_text(tmp_path, WHOLE_PIPELINE + "vars: {lake: x}\n", {"laek": "y"})


def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    text = WHOLE_PIPELINE + "kafka: {sasl.password: '${env:SECRET}'}\n"
    pipeline = load_text(tmp_path, text)
    assert pipeline.kafka == {"sasl.password": "pw"}
    assert "pw" not in repr(pipeline)


def test_a_problem_is_rendered_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "name: x\nsources:\n  日本: {«topik»: a}\n".replace("«", "").replace("»", ""))
    place = Place(file=str(path), line=3, column=8)
    assert render(Problem("unknown key 'topik'", place, "a hint")).splitlines() == [
        f"{path}:3:8: unknown key 'topik'",
        "    3 |   日本: {topik: a}",
        "      |          ^^^^^",
        "      = a hint",
    ]


def test_a_long_line_is_cut_around_the_word_without_control_characters(tmp_path: Path) -> None:
    path = write(tmp_path, "a" * 500 + " \x1b[31m word " + "b" * 500)
    shown = render(Problem("m", Place(file=str(path), line=1, column=508))).splitlines()
    assert "\x1b" not in shown[1]
    assert len(shown[1]) < 130
    start = shown[2].index("^")
    assert shown[1][start : len(shown[2])] == "word"


def test_a_problem_outside_the_file_is_rendered_without_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a\n")
    assert render(Problem("m", Place(file=str(path), line=9, column=9))) == f"{path}:9:9: m"
    assert render(Problem("m", Place(file=str(path / "gone"), line=9, column=9))) == f"{path}/gone:9:9: m"


def test_known_options_are_recognised_in_any_case(folder: Path) -> None:
    options = "options: {Order_By: ts}"
    text = sink(f"table: x\nkeys: [a]\nmode: upsert\nformat: delta\n{options}")
    assert load_text(folder, text).sinks[0].options == {"order_by": "ts"}
    text = sink("console: true\noptions: {numrows: 5, TRUNCATE: false}")
    assert load_text(folder, text).sinks[0].options == {"numRows": "5", "truncate": "false"}
    text = sink("topic: x\noptions: {Kafka.Acks: all, unheard.Of: 1}")
    assert load_text(folder, text).sinks[0].options == {"Kafka.Acks": "all", "unheard.Of": "1"}


def test_a_java_pattern_is_accepted_with_sparks_own_connector(folder: Path) -> None:
    text = source(r"pattern: orders-\p{Alpha}+" + "\nformat: text")
    (read,) = load_text(folder, "connector: kafka\n" + text).sources.values()
    assert isinstance(read, TopicSource)
    assert read.pattern == r"orders-\p{Alpha}+"
    with pytest.raises(InvalidPipeline, match="not a regular expression"):
        load_text(folder, text)
