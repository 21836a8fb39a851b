"""Subscribe by content: all advertisements that feature one person. `python advertisements.py [HOST:PORT [COUNT]]`"""

from __future__ import annotations

import random
import sys
import uuid

from reading import compare, create, read, write

PEOPLE = [f"person {number}" for number in range(200)]


def main(bootstrap: str = "localhost:9092", count: str = "200000") -> None:
    rng = random.Random(1)
    topic = f"advertisements-{uuid.uuid4().hex[:6]}"
    create(bootstrap, topic)
    write(
        bootstrap,
        topic,
        [{"id": number, "person": rng.choice(PEOPLE), "text": "Buy it now! " * 10} for number in range(int(count))],
    )
    view = f"{topic}-of-person-7"
    create(bootstrap, view, {"moldau.view.from": topic, "moldau.view.where": "person = 'person 7'"})
    everything = read(bootstrap, topic, lambda advertisement: advertisement["person"] == "person 7")
    shown = read(bootstrap, view, lambda advertisement: True)
    print(f"{len(shown.values)} of {count} advertisements feature person 7")
    if shown.values != everything.values:
        raise SystemExit("the view shows something else than the source")
    compare(everything, shown)


if __name__ == "__main__":
    main(*sys.argv[1:])
