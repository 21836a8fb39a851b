"""SCRAM salts of unknown users: without the secret, a client cannot tell them from the salts of existing users."""

from __future__ import annotations

import hmac
from collections import Counter
from random import Random

import pytest
from harness.operations import operations_of

from moldau.security.sasl.made_up_salts import BASE_36, FORMS_MAX, JAVA_NUMBER, MadeUpSalts, SaltForm, salt_form
from moldau.security.sasl.scram import Credentials, ScramUsers
from moldau.security.scram_credentials import ScramCredential, ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
HEX = b"0123456789abcdef"
BYTES = bytes(range(256))


def java_salt(rng: Random) -> bytes:
    """Return what Kafka's tools make: `new BigInteger(130, random).toString(36)`."""
    number, digits = rng.getrandbits(130), bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(BASE_36[digit])
    return bytes(reversed(digits))


def users(java: int, raw: int) -> Credentials:
    """Return `java` users as Kafka's tools create them, and `raw` users with 16-byte salts and more iterations."""
    rng = Random(7)
    stored = {
        (int(SHA_256), f"java{number}"): ScramCredential(java_salt(rng), b"", b"", 4096) for number in range(java)
    }
    for number in range(raw):
        stored[int(SHA_256), f"raw{number}"] = ScramCredential(rng.randbytes(16), b"", b"", 8192)
    return stored


def made_up_forms(stored: Credentials, names: int, secret: bytes = b"secret") -> list[SaltForm]:
    found = [ScramUsers(SHA_256, lambda: stored, lambda: secret).find(f"nobody{number}") for number in range(names)]
    assert not any(is_known for _, is_known in found)
    return [salt_form(credential.salt, credential.iterations) for credential, _ in found]


@pytest.mark.parametrize(
    ("salt", "alphabet", "length"),
    [
        (b"1abcdefghijklmnopqrstuvwxy", BASE_36, JAVA_NUMBER),
        (b"zbcdefghijklmnopqrstuvwxy", BASE_36, JAVA_NUMBER),
        (b"z1bcdefghijklmnopqrstuvwxy", BASE_36, 26),
        (b"0bcdefghijklmnopqrstuvwxy", BASE_36, 25),
        (b"salt", BASE_36, 4),
        (b"00ff" * 8, HEX, 32),
        (b"\0" * 16, BYTES, 16),
        (b"", HEX, 0),
    ],
)
def test_the_form_of_a_salt_is_recognised(salt: bytes, alphabet: bytes, length: int) -> None:
    assert salt_form(salt, 4096) == (4096, alphabet, length)


def test_a_form_is_as_frequent_among_made_up_salts_as_among_users() -> None:
    forms = Counter(made_up_forms(users(75, 25), 2_000))
    assert forms.keys() == {(4096, BASE_36, JAVA_NUMBER), (8192, BYTES, 16)}
    assert 400 < forms[SaltForm(8192, BYTES, 16)] < 600


def test_a_new_user_changes_few_names_and_only_to_its_form() -> None:
    before, after = made_up_forms(users(75, 25), 2_000), made_up_forms(users(75, 26), 2_000)
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert len(changed) < 40, "2,000 times 0.74 percent are expected"
    assert set(changed) <= {SaltForm(8192, BYTES, 16)}


def test_made_up_salts_are_the_same_whatever_the_order_of_users_and_differ_with_the_secret() -> None:
    stored = users(20, 20)
    turned = dict(reversed(stored.items()))
    assert made_up_forms(stored, 100) == made_up_forms(turned, 100)
    assert made_up_forms(stored, 100) != made_up_forms(stored, 100, b"another")


def test_made_up_salts_have_the_number_range_of_java() -> None:
    found = [ScramUsers(SHA_256, lambda: users(1, 0), bytes).find(f"{number}")[0].salt for number in range(1_000)]
    assert all(int(salt, 36) < 1 << 130 and salt[:1] != b"0" for salt in found)
    lengths = Counter(map(len, found))
    assert 340 < lengths[26] < 470, "405 are expected, each beginning with 1"
    assert {salt[:1] for salt in found if len(salt) == 26} == {b"1"}
    assert lengths[25] > 500


def test_the_number_of_forms_that_a_login_looks_at_is_limited() -> None:
    calls = 0

    def mac(name: str, length: int) -> bytes:
        nonlocal calls
        calls += 1
        return hmac.digest(b"secret", name.encode(), "sha512")[:length]

    salts = MadeUpSalts(mac)
    salts.count((b"s" * 16, 4096 + number) for number in range(10 * FORMS_MAX))
    salts.make_up("nobody")
    assert calls <= FORMS_MAX + 1


def test_a_new_user_does_not_make_the_form_of_all_salts_be_found_again() -> None:
    current = users(1_000, 0)
    known = ScramUsers(SHA_256, lambda: current, lambda: b"secret")
    salt_form.cache_clear()
    first = operations_of(lambda: known.find("nobody"))
    current = users(1_000, 1)
    assert operations_of(lambda: known.find("nobody")) < first / 2
