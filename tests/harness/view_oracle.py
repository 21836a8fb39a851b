"""An oracle of views in plain Python: random expressions, each with a function that computes its value for a record.

It shares no code with the parser, the compiler or the engine.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Compute = Callable[[Any], Any]
NAMES = ("a", "b", "user", "flag")
TEXTS = ("x", "Anna", "bob", "it's", "häß", "", "12", "true")


@dataclass(frozen=True)
class Seen:
    """A record as an expression sees it."""

    fields: dict[str, Any]
    key: str | None
    offset: int
    partition: int
    timestamp: int


def as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def as_number(value: Any) -> float | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (ValueError, TypeError):
        return None


def as_boolean(value: Any) -> bool | None:
    return {"true": True, "false": False}.get(as_text(value) or "")


def field(rng: random.Random) -> tuple[str, Compute]:
    name = rng.choice(NAMES)
    if rng.random() < 0.2:
        return f"deep.{name}", lambda seen: (seen.fields.get("deep") or {}).get(name)
    return rng.choice([name, f"value.{name}", f'"{name}"']), lambda seen: seen.fields.get(name)


def number(rng: random.Random, depth: int) -> tuple[str, Compute]:
    choice = rng.randrange(6 if depth else 3)
    if choice == 0:
        literal = rng.choice([0.0, 1.0, 5.0, 12.0, 2.5, 100.0])
        return repr(literal), lambda seen: literal
    if choice == 1:
        text, compute = field(rng)
        return f"number({text})", lambda seen: as_number(compute(seen))
    if choice == 2:
        name = rng.choice(["offset", "partition", "timestamp"])
        return name, lambda seen: float(getattr(seen, name))
    if choice == 3:
        text, compute = text_value(rng, depth - 1)
        return f"length({text})", lambda seen: None if compute(seen) is None else float(len(compute(seen)))
    one, first = number(rng, depth - 1)
    two, second = number(rng, depth - 1)
    operator = rng.choice("+-*/")

    def computed(seen: Seen) -> float | None:
        left, right = first(seen), second(seen)
        if left is None or right is None or (operator == "/" and right == 0):
            return None
        return {"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[operator]

    return f"({one} {operator} {two})", computed


def text_value(rng: random.Random, depth: int) -> tuple[str, Compute]:
    choice = rng.randrange(6 if depth else 3)
    if choice == 0:
        literal = rng.choice(TEXTS)
        return "'" + literal.replace("'", "''") + "'", lambda seen: literal
    if choice == 1:
        text, compute = field(rng)
        return f"text({text})", lambda seen: as_text(compute(seen))
    if choice == 2:
        return "key", lambda seen: seen.key
    text, compute = text_value(rng, depth - 1)
    if choice == 3:
        return f"lower({text})", lambda seen: None if compute(seen) is None else compute(seen).lower()
    if choice == 4:
        return f"left({text}, 2)", lambda seen: None if compute(seen) is None else compute(seen)[:2]
    other, second = text_value(rng, depth - 1)

    def joined(seen: Seen) -> str | None:
        return None if compute(seen) is None or second(seen) is None else compute(seen) + second(seen)

    return f"({text} || {other})", joined


def compare(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    return bool(
        {
            "=": left == right,
            "<>": left != right,
            "<": left < right,
            "<=": left <= right,
            ">": left > right,
            ">=": left >= right,
        }[operator]
    )


def condition(rng: random.Random, depth: int) -> tuple[str, Compute]:
    choice = rng.randrange(9 if depth else 5)
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    if choice == 0:
        (one, first), (two, second) = number(rng, 1), number(rng, 1)
        return f"{one} {operator} {two}", lambda seen: compare(operator, first(seen), second(seen))
    if choice == 1:  # a field is read as what it is compared with
        (one, first), (two, second) = field(rng), number(rng, 0)
        return f"{one} {operator} {two}", lambda seen: compare(operator, as_number(first(seen)), second(seen))
    if choice == 2:
        (one, first), (two, second) = field(rng), text_value(rng, 1)
        operator = rng.choice(["=", "<>"])
        return f"{one} {operator} {two}", lambda seen: compare(operator, as_text(first(seen)), second(seen))
    if choice == 3:
        text, compute = field(rng)
        return f"{text} IS NOT NULL", lambda seen: compute(seen) is not None
    if choice == 4:
        text, compute = field(rng)
        return text, lambda seen: as_boolean(compute(seen))
    if choice == 5:
        text, compute = condition(rng, depth - 1)
        return f"NOT ({text})", lambda seen: None if compute(seen) is None else not compute(seen)
    if choice == 6:
        text, compute = field(rng)
        return (
            f"{text} IN (1, 12, 5)",
            lambda seen: None if as_number(compute(seen)) is None else as_number(compute(seen)) in (1, 12, 5),
        )
    (one, first), (two, second) = condition(rng, depth - 1), condition(rng, depth - 1)
    if choice == 7:

        def both(seen: Seen) -> bool | None:
            values = (first(seen), second(seen))
            return False if False in values else None if None in values else True

        return f"({one} and {two})", both

    def either(seen: Seen) -> bool | None:
        values = (first(seen), second(seen))
        return True if True in values else None if None in values else False

    return f"({one} OR {two})", either


def selection(rng: random.Random) -> tuple[str, Callable[[Any], dict[str, Any]]]:
    items: list[tuple[str, str, Compute]] = []
    for index in range(rng.randint(1, 4)):
        name, kind = f"n{index}", rng.randrange(4)
        if kind == 0:
            text, compute = field(rng)
        elif kind == 1:
            text, compute = number(rng, 1)
        elif kind == 2:
            inner, plain = text_value(rng, 1)
            text = f"sha256({inner})"

            def compute(seen: Seen, plain: Compute = plain) -> Any:
                return None if plain(seen) is None else hashlib.sha256(plain(seen).encode()).hexdigest()
        else:
            text, compute = "null", lambda seen: None
        items.append((name, text, compute))
    text = ", ".join(f"{text} as {name}" for name, text, _ in items)
    return text, lambda seen: {name: compute(seen) for name, _, compute in items}
