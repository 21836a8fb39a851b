"""Subjects of certificates as Java writes them, and a parser that reads or refuses any bytes."""

from __future__ import annotations

from random import Random

import pytest
from harness.certificates import Authority
from harness.depth import DEPTH

from moldau.base.errors import MalformedData
from moldau.security.tls.der import dotted
from moldau.security.tls.names import alternative_names, subject

CN = bytes.fromhex("550403")
O = bytes.fromhex("55040a")  # noqa: E741
C = bytes.fromhex("550406")
UID = bytes.fromhex("0992268993f22c640101")
EMAIL = bytes.fromhex("2a864886f70d010901")
UTF8, PRINTABLE, T61, IA5, BMP, UNIVERSAL, OCTETS = 0x0C, 0x13, 0x14, 0x16, 0x1E, 0x1C, 0x04
Attribute = tuple[bytes, int, bytes]


def element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    long = size.to_bytes(2, "big")
    length = bytes((size,)) if size < 128 else bytes((0x81, size)) if size < 256 else bytes((0x82,)) + long
    return bytes((tag,)) + length + content


def attribute(oid: bytes, tag: int, value: bytes) -> bytes:
    return element(0x30, element(6, oid), element(tag, value))


def certificate(*rdns: list[Attribute]) -> bytes:
    """Return the parts of a certificate up to its subject; the rest is not read."""
    sets = (element(0x31, *(attribute(*each) for each in rdn)) for rdn in rdns)
    empty = element(0x30)
    return element(0x30, element(0x30, element(2, b"\1"), empty, empty, empty, element(0x30, *sets)))


@pytest.mark.parametrize(
    ("rdns", "text"),
    [
        ([[(C, PRINTABLE, b"CZ")], [(O, UTF8, b"Moldau")], [(CN, UTF8, b"alice")]], "CN=alice,O=Moldau,C=CZ"),
        ([[(O, UTF8, b"b"), (CN, UTF8, b"a")], [(UID, UTF8, b"u")]], "UID=u,O=b+CN=a"),
        ([[(CN, UTF8, b'a=b+c,d;e<f>g"h\\i#')]], 'CN=a\\=b\\+c\\,d\\;e\\<f\\>g\\"h\\\\i\\#'),
        ([[(CN, UTF8, b"  lead and trail \r")]], "CN=\\ \\ lead and trail\\ \\\r"),
        ([[(CN, UTF8, b"  ")]], "CN=\\ \\ "),
        ([[(CN, UTF8, b"tab\tnl\n\0")]], "CN=tab\tnl\n\\00"),
        ([[(CN, UTF8, "Žluťoučký 😀".encode())]], "CN=Žluťoučký 😀"),
        ([[(EMAIL, IA5, b"a@b.cz")], [(CN, UTF8, b"x")]], "CN=x,1.2.840.113549.1.9.1=#16066140622e637a"),
        ([[(CN, T61, b"ab\xe9c")]], "CN=ab\ufffdc"),
        ([[(CN, BMP, b"\0b\0m")]], "CN=\\00b\\00m"),
        ([[(CN, UNIVERSAL, b"ab")]], "CN=#1c026162"),
        ([[(CN, OCTETS, b"ab")]], "CN=#04026162"),
        ([], ""),
    ],
)
def test_a_subject_is_written_as_java_writes_it(rdns: list[list[Attribute]], text: str) -> None:
    """The texts are what `new X500Principal(der).getName()` of Java 17 returns."""
    assert subject(certificate(*rdns)) == text


def test_names_of_a_real_certificate_are_read() -> None:
    issued = Authority().issue("localhost", "127.0.0.1", "::1", "a@example.com", user="alice")
    assert subject(issued.der) == "CN=alice,OU=tests,O=Moldau"
    assert alternative_names(issued.der) == {"DNS:localhost", "IP:127.0.0.1", "IP:::1", "EMAIL:a@example.com"}


def test_a_certificate_may_lack_alternative_names() -> None:
    assert alternative_names(certificate([(CN, UTF8, b"x")])) == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30",
        b"\x30\x80\0\0",
        b"\x30\x05\0",
        b"\x30\x81\x01\0",
        b"\x30\x82\x00\x80" + bytes(128),
        b"\x3f\x01\0",
        b"\x30\x85\1\1\1\1\1",
        certificate() + b"\0",
        certificate([(b"", UTF8, b"x")]),
        certificate([(b"\x80\x01", UTF8, b"x")]),
        certificate([(b"\x81", UTF8, b"x")]),
        certificate([(b"\x81" * 300 + b"\1", UTF8, b"x")]),
    ],
)
def test_invalid_der_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedData):
        subject(data)


OBJECT_IDENTIFIERS = [("550403", "2.5.4.3"), ("2a864886f70d", "1.2.840.113549"), ("8837", "2.999")]


@pytest.mark.parametrize(("content", "text"), OBJECT_IDENTIFIERS)
def test_object_identifiers_are_decoded(content: str, text: str) -> None:
    assert dotted(bytes.fromhex(content)) == text


def test_any_bytes_are_a_subject_or_malformed() -> None:
    rng = Random(20)
    valid = Authority().issue(user="alice").der
    outcomes = set()
    for _ in range(2_000 * DEPTH):
        data = bytearray(valid)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(min(len(data), 250))] = rng.choice((0, 0x30, 0x31, 0x80, 0x81, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        for read in (subject, alternative_names):
            try:
                read(bytes(data))
                outcomes.add("read")
            except MalformedData:
                outcomes.add("malformed")
    assert outcomes == {"read", "malformed"}
