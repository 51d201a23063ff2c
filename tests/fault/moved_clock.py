"""The wall clock of some programs, moved by hand (planted_clock.cc): no right is needed, and the
harness's own clock stays."""
import mmap
import os
import struct
import sys
import tempfile

from harness import BIN

HOUR, DAY = 3600, 86400


class MovedClock:
    """`environment` is that of programs that live by it. Offsets are seconds ahead of this machine's
    clock. `wall_timers`: the planted bug, a program that times by the wall clock."""

    def __init__(self, wall_timers=False):
        library = BIN.parent / "tests" / "libplanted_clock.so"
        if not library.exists():
            sys.exit(f"{library} is missing: build the target planted_clock")
        self.file = tempfile.NamedTemporaryFile(prefix="ponder-clock-")
        self.file.write(struct.pack("=3q", 0, 0, 1 if wall_timers else 0))
        self.file.flush()
        self.map = mmap.mmap(self.file.fileno(), 24)
        self.offset, self.jumps, self.wall_timers = 0.0, 0, wall_timers
        self.environment = {"LD_PRELOAD": str(library), "FAKETIME_OFFSETS": self.file.name}

    def jump(self, seconds):
        """The wall clock is set."""
        self.offset += seconds
        self.jumps += 1
        self.map[0:8] = struct.pack("=q", int(self.offset * 1000))

    def suspend(self, seconds):
        """The machine slept: the wall clock and CLOCK_BOOTTIME went on, CLOCK_MONOTONIC did not."""
        boot = struct.unpack("=q", self.map[8:16])[0] + int(seconds * 1000)
        self.map[8:16] = struct.pack("=q", boot)
        self.jump(seconds)

    def is_used_by(self, pid):
        """Whether that process really lives by it."""
        with open(f"/proc/{pid}/maps") as maps:
            return self.file.name in maps.read()

    def close(self):
        self.map.close()
        self.file.close()
