"""Python imports this at the start of a process whose clock is libfaketime's. If that leaves the monotonic clock alone,
its version 0.9.10 lets clock_nanosleep fail, and with it `time.sleep`; select works."""

import select
import time


def sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


time.sleep = sleep
