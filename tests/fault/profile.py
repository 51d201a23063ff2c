"""Two sizes of every harness, and its figures in one form.

The short profile runs in scripts/test, the full one (PONDER_SOAK=1) in scripts/soak, which collects
the FIGURE lines of all harnesses into the table of docs/reliability.md.
"""
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
FULL = os.environ.get("PONDER_SOAK") == "1"


def size(short, full):
    """How much of it: `short` in scripts/test, `full` in scripts/soak."""
    return full if FULL else short


def figure(promise, what, value, bound):
    """One measured figure: the promise (7 or "P7"), what was counted, what it may be at most or least."""
    print(f"FIGURE | P{str(promise).removeprefix('P')} | {what} | {value} | {bound} |", flush=True)


def ahead_of_others():
    """This process and those that it starts run before all others, where that is allowed: bounds in
    milliseconds speak of a machine that does nothing else."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (OSError, AttributeError):
        pass


def steadied(measure, tries=None):
    """The last of what `measure` gave: a list of (what, milliseconds, at most). Where one was too slow
    it measures again, twice at most in the short size and never in the full one or with a planted bug:
    a disk that others use has a slow second now and then, while a product that is too slow is so every
    time."""
    for left in range((1 if "--planted" in sys.argv else tries or size(3, 1)) - 1, -1, -1):
        found = measure()
        slow = [f"{what} is {ms:.0f} ms, at most {most:.0f}" for what, ms, most in found if ms > most]
        if not slow or not left:
            return found
        print("measured again:", "; ".join(slow), flush=True)


def sync_factor(directory=tempfile.gettempdir(), quiet_ms=5):
    """How many times slower than `quiet_ms` the slowest of a hundred syncs on this disk is, at least 1.
    Bounds on what waits for the disk speak of one that syncs within 5 ms, which a disk that others
    use at the same time does not."""
    slowest = 0.0
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(100):
            file.write(bytes(4096))
            file.flush()
            began = time.monotonic()
            os.fdatasync(file.fileno())
            slowest = max(slowest, (time.monotonic() - began) * 1000)
    return max(1.0, slowest / quiet_ms)
