"""Read one field of a wide message: `python one_field.py [HOST:PORT [COUNT]]`."""

from __future__ import annotations

import sys
import uuid

from reading import compare, create, read, write


def main(bootstrap: str = "localhost:9092", count: str = "50000") -> None:
    topic = f"sensors-{uuid.uuid4().hex[:6]}"
    create(bootstrap, topic)
    channels = {f"channel_{number}": 0.5 * number for number in range(60)}
    write(bootstrap, topic, [{**channels, "temperature": number % 40} for number in range(int(count))])
    view = f"{topic}-temperature"
    create(bootstrap, view, {"moldau.view.from": topic, "moldau.view.select": "temperature"})
    everything = read(bootstrap, topic, lambda message: True)
    shown = read(bootstrap, view, lambda message: True)
    if [value["temperature"] for value in everything.values] != [value["temperature"] for value in shown.values]:
        raise SystemExit("the view shows something else than the source")
    print(f"{len(shown.values)} messages with {len(channels) + 1} fields; the view has one of them")
    compare(everything, shown)


if __name__ == "__main__":
    main(*sys.argv[1:])
