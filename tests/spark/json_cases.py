"""JSON texts for the split into rows and bad records: chosen ones that parsers disagree about, and random ones."""

from __future__ import annotations

import json
from random import Random

DDL = (
    "id string not null, qty int, price double, ts timestamp, day date, amount decimal(6,2), ok boolean, big bigint,"
    " tags array<int>, sizes map<string,int>, who struct<age:int not null, name:string>, blob binary, small smallint,"
    " tiny tinyint, ratio float, lines array<struct<sku:string not null, n:int>>,"
    " amounts array<decimal(6,2)>, rates map<string,struct<rate:decimal(38,10)>>, wei decimal(38,0)"
)

TEXTS = r"""
{"id":"a"} garbage
{"id":"a"}{"id":"b"}
{"id":"a"},{"id":"b"}
{"id":"a"},null
{"id":"a"},"x":1
{"id":"a"}]
{"id":"a"}}
{"id":"a"}]}
{"id":"a"}],"record":[
{"id":"a"},
,{"id":"a"}
[{"id":"a"}]
{"id":"a"}/*c*/
null
5
"x"
true
{}
[]
{"id":5}
{"id":{"z": [1,2]}}
{"id":null}
{"id":"a","qty":"12"}
{"id":"a","qty":""}
{"id":"a","qty":1.0}
{"id":"a","qty":1e2}
{"id":"a","qty":2147483647}
{"id":"a","qty":2147483648}
{"id":"a","qty":-2147483649}
{"id":"a","qty":true}
{"id":"a","qty":[1]}
{"id":"a","qty":01}
{"id":"a","qty":+1}
{"id":"a","qty":-0}
{"id":"a","qty":.5}
{"id":"a","qty":1.}
{"id":"a","qty":0x10}
{"id":"a","qty":1,"qty":"x"}
{"id":"a","qty":"x","qty":1}
{"id":"a","id":"b"}
{"id":"a","id":null}
{"ID":"a"}
{"id":"a","price":1e400}
{"id":"a","price":-1e400}
{"id":"a","price":1e-400}
{"id":"a","price":NaN}
{"id":"a","price":Infinity}
{"id":"a","price":-Infinity}
{"id":"a","price":"NaN"}
{"id":"a","price":"Infinity"}
{"id":"a","price":"5"}
{"id":"a","price":5}
{"id":"a","other":NaN}
{"id":"a","ratio":1e39}
{"id":"a","ratio":3.4e38}
{'id':'a'}
{id:"a"}
{"id":"a",}
{"id":"a" "qty":1}
{"id" "a"}
{"id":"a"
{"id":"a
{"id":"a\x"}
{"id":"\ud800"}
{"id":"\u12"}
{"id":"a","amount":12345.6}
{"id":"a","amount":9999.99}
{"id":"a","amount":9999.995}
{"id":"a","amount":1.239}
{"id":"a","amount":"1.2"}
{"id":"a","amount":""}
{"id":"a","amount":"x"}
{"id":"a","amount":1e3}
{"id":"a","amount":1e9}
{"id":"a","amount":1e-9}
{"id":"a","amount":1e999999999}
{"id":"a","amount":-1E+99999}
{"id":"a","amount":true}
{"id":"a","amount":"1e999999999"}
{"id":"a","amount":"1e999999999","amount":1}
{"id":"a","amount":"1e-999999999"}
{"id":"a","amount":"1e٩٩٩٩٩٩٩٩٩"}
{"id":"a","amount":"1\u002c5"}
{"id":"a","amount":"1\u002e5"}
{"id":"a","amount":"1e999999999",
{"id":"a","amounts":["1.5",2]}
{"id":"a","amounts":["1,5"]}
{"id":"a","amounts":[ "1e999999999"]}
{"id":"a","amounts":[1, 1e999999999]}
{"id":"a","rates":{"1,5":{"rate":"1.5"}}}
{"id":"a","rates":{"a":{"rate":"1,5"}}}
{"id":"a","rates":{"\ud800":{"rate":"1\u00659999"}}}
{"id":"a","note":"commit 7e12345","amount":1}
{"id":"7e12345","amount":1}
{"id":"a","other":{"amount":"1,000","of":[1e5000]}}
{"id":"a","other":["abc:",1,"1,5"]}
{"id":"a","wei":123456789012345678901234567890}
{"id":"a","wei":123456789012345678901234567890,"qty":"x"}
{"id":"a","wei":99999999999999999999999999999999999999.5}
{"id":"a","sizes":{"\ud800":"x"}}
{"id":"a","ok":"true"}
{"id":"a","ok":1}
{"id":"a","ok":false}
{"id":"a","big":9223372036854775807}
{"id":"a","big":9223372036854775808}
{"id":"a","small":32768}
{"id":"a","small":-32768}
{"id":"a","tiny":128}
{"id":"a","tiny":127}
{"id":"a","tags":[1,"a"]}
{"id":"a","tags":[1,null]}
{"id":"a","tags":3}
{"id":"a","tags":{}}
{"id":"a","sizes":{"a":"b"}}
{"id":"a","sizes":{"a":1,"a":2}}
{"id":"a","sizes":{"a":null}}
{"id":"a","sizes":[]}
{"id":"a","who":{"age":"q","name":"k"}}
{"id":"a","who":{"name":"k"}}
{"id":"a","who":{"age":null}}
{"id":"a","who":{"age":7}}
{"id":"a","who":5}
{"id":"a","who":null}
{"id":"a","lines":[{"sku":"x"},{"n":1}]}
{"id":"a","lines":[{"sku":"x"},null]}
{"id":"a","lines":[]}
{"id":"a","ts":"2026-01-31T08:00:00Z"}
{"id":"a","ts":"2026-01-31T08:00:00.123456+02:00"}
{"id":"a","ts":"2026-01-31 08:00:00"}
{"id":"a","ts":"2026-01-31"}
{"id":"a","ts":"yesterday"}
{"id":"a","ts":""}
{"id":"a","ts":1700000000}
{"id":"a","ts":1700000000000}
{"id":"a","ts":1.5}
{"id":"a","ts":true}
{"id":"a","ts":253402300799}
{"id":"a","ts":253402300800}
{"id":"a","ts":-62135596800}
{"id":"a","ts":-62135596801}
{"id":"a","day":"2026-01-31"}
{"id":"a","day":"tomorrow"}
{"id":"a","day":5}
{"id":"a","blob":"aGVsbG8="}
{"id":"a","blob":"!!"}
{"id":"a","blob":5}
{"other":{"id":"a"}}
{"id":"a","record":[null,1]}
{"id":"a","_moldau_corrupt":"x"}
""".strip().splitlines()

BYTES = [
    b"",
    b" ",
    b"\n",
    b"\xff\xfe",
    b'{"id":"\xff"}',
    b'{"id":"a","other":"\xc3"}',
    b'{"id":"\xed\xa0\x80"}',
    b'\xef\xbb\xbf{"id":"a"}',
    b'{"id":"a"}\x00',
    b'\x00{"id":"a"}',
    b'{"id":"a\x00b"}',
    b'{"id":"a\nb"}',
    b' \t\r\n{"id":"a"}\r\n ',
    b'{"id":"a"}\x0c',
    '{"id":"a"}\u00a0'.encode(),
    '{"id":"žluťoučký 🐎"}'.encode(),
    b'{"id":"a","other":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"id":"a","other":' + b"[" * 3000 + b"]" * 3000 + b"}",
    b'{"id":"a","other":' + b'{"x":' * 3000 + b"1" + b"}" * 3001,
    b'{"id":"a","other":' + b"[" * 3000,
    b'{"id":"a","big":1' + b"0" * 1200 + b"}",
    b'{"id":"' + b"x" * 100_000 + b'"}',
    b'{"id":"1,5","amount":"1.5","other":[' + b'"x\\"",1,' * 50_000 + b"1]}",
    b'{"id":"1,5","amount":"1.5","other":"' + b"1" * 500_000 + b'"}',
    b'{"id":"a","amounts":["1,' + b"1" * 500_000 + b'"]}',
    '{"id":"a"}'.encode("utf-16"),
]


def cases(seed: int, count: int) -> list[bytes]:
    rng = Random(seed)
    chosen = [text.encode() for text in TEXTS] + BYTES
    return chosen + [_random(rng, chosen) for _ in range(count)]


def _random(rng: Random, chosen: list[bytes]) -> bytes:
    """Rows that mostly fit, and damaged ones: a byte changed, lost or doubled, an end cut off, two texts joined."""
    text = json.dumps(_object(rng)).encode() if rng.random() < 0.6 else rng.choice(chosen)[:400]
    damage = rng.random()
    at = rng.randrange(len(text) + 1)
    if damage < 0.25:
        return text
    if damage < 0.5:
        return text[:at] + bytes([rng.choice(b'{}[],:"\\ 019ex.-\x00\xff')]) + text[at + 1 :]
    if damage < 0.6:
        return text[:at]
    if damage < 0.8:
        return text[:at] + rng.choice([b"}", b"]", b",", b'"', b" ", b"null", b"{}", b"1"]) + text[at:]
    return text + rng.choice([b"", b" ", b",", b"]", b"]}", b"}"]) + rng.choice(chosen)[:200]


def _object(rng: Random) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": rng.choice(["a", "b", 5, None, True, [1], "é"]),
        "qty": rng.choice([1, -1, 2**31, 2**31 - 1, "1", 1.5, None, True, []]),
        "price": rng.choice([1, 1.5, -2e300, "1", None, 10**320]),
        "ok": rng.choice([True, False, None, "true", 0]),
        "big": rng.choice([2**63 - 1, 2**63, 0, None, "0"]),
        "amount": rng.choice([1, 1.25, 9999.99, 10000, "12.5", "1,5", None]),
        "tags": rng.choice([[], [1], [None], ["x"], {}, 1]),
        "sizes": rng.choice([{}, {"a": 1}, {"a": "1"}, [], {"a": None}]),
        "who": rng.choice([{"age": 1}, {"name": "n"}, {"age": 1, "name": 5}, None, {"age": "1"}, []]),
        "lines": rng.choice([[], [{"sku": "s"}], [{"n": 1}], [{"sku": None}], [{"sku": "s", "n": "x"}], None]),
        "ts": rng.choice(["2026-01-31T08:00:00Z", "2026-01-31 08:00", 0, -1, 10**12, "x", None]),
        "day": rng.choice(["2026-01-31", "x", None]),
        "tiny": rng.choice([1, 127, 128, None]),
        "other": rng.choice([None, {"a": [{}]}, "x"]),
    }
    names = rng.sample(sorted(fields), rng.randint(0, 3))
    return ({"id": "a"} if rng.random() < 0.8 else {}) | {name: fields[name] for name in names}
