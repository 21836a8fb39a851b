#!/bin/sh
# kafka-console-share-consumer from a checkout: the checkout's .venv if there is one, else the python3 on the PATH.
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd) || exit 1
python=$here/.venv/bin/python
[ -x "$python" ] || python=python3
PYTHONPATH=$here/src${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m moldau.cli.kafka.console_share_consumer "$@"
