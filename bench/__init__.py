"""The benchmarks: one broker beside Apache Kafka (`bench.broker`), one broker against itself (`bench.scale`).

Everything here is a client of a broker in another process and knows only its address and process id.
Nothing of the product may be imported: the measured code must not take part in the measurement. What tests use too
is in `tests/harness`: hostile clients, the largest requests, a large cluster that only answers.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
