"""Salts for users that do not exist: who does not know the secret cannot tell them from those of users.

Salts differ in their form: the tools of Kafka write a number, others take random bytes, and an administrator may choose
the iterations. A name gets each form as often as users have it, so that no form tells that a user exists. The choice is
weighted rendezvous hashing: a new user changes the made-up salts of few names, those that take over its form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import log
from typing import Final, NamedTuple

from moldau.security.sasl.scram_messages import ITERATIONS_MIN

BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_LETTERS: Final = BASE_36[10:]
_ALPHABETS: Final = (
    BASE_36[:16],
    BASE_36,
    BASE_36 + _LETTERS.upper(),
    BASE_36 + _LETTERS.upper() + b"+/=",
    bytes(range(256)),
)
"""Of salts, the smallest first. The form of a salt has the first one with all its characters."""
JAVA_NUMBER: Final = -1
"""Instead of a length: Kafka's tools make salts by `new BigInteger(130, random).toString(36)`, mostly of 25 or 26
digits."""
_NUMBER_BITS: Final = 130
_NUMBER_BYTES: Final = 17
_NUMBER_LENGTHS: Final = range(20, 27)
"""One in three billion is shorter."""
FORMS_MAX: Final = 64
"""The most frequent forms, from which one is chosen at each login."""


class SaltForm(NamedTuple):
    iterations: int
    alphabet: bytes
    length: int


DEFAULT_FORM: Final = SaltForm(ITERATIONS_MIN, BASE_36, JAVA_NUMBER)


@lru_cache(maxsize=65_536)  # when one user changes, those of all are counted again
def salt_form(salt: bytes, iterations: int) -> SaltForm:
    alphabet = next(each for each in _ALPHABETS if not salt.translate(None, each))
    if alphabet == BASE_36 and len(salt) in _NUMBER_LENGTHS and salt[:1] != b"0" and not int(salt, 36) >> _NUMBER_BITS:
        return SaltForm(iterations, BASE_36, JAVA_NUMBER)
    return SaltForm(iterations, alphabet, len(salt))


class MadeUpSalts:
    """`bytes_for` returns so many bytes for a text, which nobody can compute without the secret."""

    def __init__(self, bytes_for: Callable[[str, int], bytes]) -> None:
        self._bytes_for = bytes_for
        self._forms: tuple[tuple[SaltForm, int], ...] = ((DEFAULT_FORM, 1),)

    def count(self, salts: Iterable[tuple[bytes, int]]) -> None:
        """Note the salts and iterations of all users."""
        forms = Counter(salt_form(*each) for each in salts) or Counter([DEFAULT_FORM])
        # By the form too: all nodes must choose from the same ones, in whatever order they know the users.
        frequent = sorted(forms.items(), key=lambda item: (-item[1], item[0]))
        self._forms = tuple(frequent[:FORMS_MAX])

    def make_up(self, user: str) -> tuple[bytes, int]:
        """Return the salt and the iterations for a name, always the same while the users have the same forms."""
        form, _ = min(self._forms, key=lambda counted: self._distance(user, *counted))
        return self._salt(user, form.alphabet, form.length), form.iterations

    def _distance(self, user: str, form: SaltForm, count: int) -> float:
        """Return a number for the name and the form. The form with the least one is chosen: with a probability that is
        proportional to its count."""
        name = f"form {form.iterations} {len(form.alphabet)} {form.length} {user}"
        fraction = (int.from_bytes(self._bytes_for(name, 8)) + 1) / (1 << 64)
        return -log(fraction) / count

    def _salt(self, user: str, alphabet: bytes, length: int) -> bytes:
        name = f"salt {user}"
        if length == JAVA_NUMBER:
            number = int.from_bytes(self._bytes_for(name, _NUMBER_BYTES))
            return _base_36(number >> 8 * _NUMBER_BYTES - _NUMBER_BITS)
        # Two bytes for each character: with one, the first characters of the alphabet would be more frequent.
        drawn = self._bytes_for(name, 2 * length)
        return bytes(
            alphabet[(high << 8 | low) % len(alphabet)] for high, low in zip(drawn[::2], drawn[1::2], strict=True)
        )


def _base_36(number: int) -> bytes:
    digits = bytearray()
    while number or not digits:
        number, digit = divmod(number, 36)
        digits.append(BASE_36[digit])
    return bytes(reversed(digits))
