#!/usr/bin/env python3
"""Who runs next, on the real daemon. Every start is written down in its own transaction, with what
waited then (planted_sqlite.cc: PONDER_STARTS), so no clock has a say in what is seen.

  lanes    jobs of both lanes from four clients, while the worker is killed, the daemon killed and
           stopped, and the wall clock jumps: inside a lane none starts before one that came earlier
           and waits, also of those that went back, and no batch job while an ask waits
  ageing   asks without a pause, more than there are places: batch jobs start once they have waited
           `ageing_s`, and not before; asks are not held up by batch jobs

P10. Planted: lost_order (a start takes up what waits in the reverse order), wall_timers (a clock that
jumps makes batch jobs old), never_ages (`ageing_s` is not kept to).
"""
import bisect
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import audit

from harness import PLANTED, TERMINAL, Daemon, check, finish, http, planted_sqlite, time, wait_until
from moved_clock import DAY, HOUR, MovedClock
from profile import figure, size, sync_factor

JOBS, SUBMITTERS = size(240, 10_000), 4
AGEING_S, AGEING_JOBS, ASK_S, LATE_S = 1.0, size(3, 40), 0.08, 0.25 * sync_factor()
BEHIND = size(100, 1000)
choose = random.Random(10)


class Starts:
    """Every start: (number of the job, its lane, earlier ones of its lane that wait, asks that wait, ms)."""

    def __init__(self, clock=None, bug=None):
        preloads = planted_sqlite(bug or "none")
        self.file = tempfile.NamedTemporaryFile("r", prefix="ponder-starts-")
        self.environment = {**(clock.environment if clock else {}), **preloads, "PONDER_STARTS": self.file.name}
        if clock:
            self.environment["LD_PRELOAD"] += ":" + clock.environment["LD_PRELOAD"]

    def seen(self):
        self.file.seek(0)
        lines = self.file.read().split("\n")[:-1]  # the last may be half written
        return [(int(seq), lane, int(before), int(asks), int(ms)) for seq, lane, before, asks, ms in map(str.split, lines)]

    def close(self):
        self.file.close()


class Submitter(threading.Thread):
    """Submits one after the other, and again with the same key where the daemon was away."""

    def __init__(self, daemon, number, count):
        super().__init__()
        self.daemon_program, self.number, self.left, self.ids = daemon, number, count, []
        self.kinds = random.Random(number)
        self.start()

    def run(self):
        while self.left > 0:
            kind = "ask" if self.kinds.random() < 0.3 else "batch"
            task = f"{self.number} {self.left} [[stub tokens=4 think=0 rate={self.kinds.choice([500, 5000])}]]"
            while True:
                try:
                    reply = self.daemon_program.submit(task, kind=kind, idempotency_key=f"order-{self.number}-{self.left}")
                    if reply.status in (200, 201):
                        break
                except (OSError, http.client.HTTPException):
                    pass
                time.sleep(0.02)
            self.ids.append(reply.json["job_id"])
            self.left -= 1


def now_ms():
    """By the clock of Starts."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW) * 1000


def ended(daemon):
    return audit.rows(daemon.home, "select count(*) n from job where state not in ('queued', 'running')")[0]["n"]


def lanes(clock):
    starts = Starts(clock, PLANTED if PLANTED == "lost_order" else None)
    with Daemon("--engine", "stub", environment=starts.environment) as daemon:
        (daemon.home / "ponder.toml").write_text("max_queued = 100000\nmax_running_batch = 1\nmax_running_interactive = 1\n"
                                                 "keep_unread = 100000\nkeep_unread_days = 36500\nageing_s = 3600\n")
        daemon.start()
        submitters = [Submitter(daemon, number, JOBS // SUBMITTERS) for number in range(SUBMITTERS)]
        kills, restarts, done, lives = 0, 0, 0, [(0, 0)]
        while done < JOBS and kills < JOBS:
            time.sleep(choose.uniform(0.05, 0.25))
            # Going back, the planted clock would only hang the timers; ahead, it makes jobs old.
            clock.jump(7 * DAY if clock.wall_timers else choose.choice([7 * DAY, -2 * HOUR, choose.uniform(-60, 60) * DAY]))
            kind = 12 if clock.wall_timers else choose.randrange(12)
            if kind < 3:
                worker = daemon.try_health().get("engine", {}).get("pid")
                if worker:
                    os.kill(worker, signal.SIGKILL)
                    kills += 1
            elif kind == 3 or restarts == 0 and done > JOBS // 5 and not clock.wall_timers:
                if restarts % 2 == 0:
                    daemon.kill(signal.SIGKILL)
                else:
                    daemon.stop()
                lives.append((now_ms(), audit.rows(daemon.home, "select max(seq) n from job")[0]["n"]))
                daemon.start(wait_ready=False)
                wait_until(lambda: daemon.try_health(), 20, "the daemon answers")
                restarts += 1
            done = ended(daemon)
        for submitter in submitters:
            submitter.join()
        seen = starts.seen()
        inversions = [start for start in seen if start[2] > 0]
        # How long a job has waited a new daemon knows by the wall clock alone: those may have come of age.
        young = [start for start in seen if start[0] > lives[bisect.bisect(lives, (start[4], 0)) - 1][1]]
        overtaken = [start for start in young if start[1] == "batch" and start[3] > 0]
        check(len({start[0] for start in seen}) == JOBS, f"{JOBS} jobs were started, {len({s[0] for s in seen})} were seen")
        check(not inversions, f"{len(inversions)} of {len(seen)} starts of a job that others of its lane came before, "
                              f"such as {inversions[:2]}")
        check(not overtaken, f"{len(overtaken)} batch jobs started while an ask waited, such as {overtaken[:2]}")
        rows = audit.rows(daemon.home, "select id, seq, state from job")
        numbers = {row["id"]: row["seq"] for row in rows}
        for submitter in submitters:
            mine = [numbers[job_id] for job_id in submitter.ids]
            check(mine == sorted(mine), "the order of submission is that in which a client submitted")
        lost = [row for row in rows if row["state"] not in ("completed", "interrupted")]
        check(not lost, f"{len(lost)} jobs did not end well, such as {lost[:2]}")
        audit.audit(daemon.home, " after it all")
    starts.close()
    figure(10, f"{len(seen)} starts of {JOBS} jobs, {kills} kills of the worker, {restarts} of the daemon, {clock.jumps} clock "
               "jumps: before an earlier one of the lane, batch before a waiting ask", f"{len(inversions)}, {len(overtaken)}",
           "0, 0")


class Asks(threading.Thread):
    """Asks one after the other, without a pause."""

    def __init__(self, daemon, number):
        super().__init__()
        self.daemon_program, self.number, self.over, self.took = daemon, number, False, []
        self.start()

    def run(self):
        count = 0
        while not self.over:
            count += 1
            began = time.monotonic()
            reply = self.daemon_program.submit(f"ask {self.number} {count} [[stub tokens={int(ASK_S * 100)} think=0 rate=100]]",
                                               kind="ask")
            job = self.daemon_program.wait_terminal(reply.json["job_id"], 20)
            check(job["state"] == "completed", f"an ask completes: {job['state']}")
            self.took.append(time.monotonic() - began)


def ageing():
    starts = Starts()
    with Daemon("--engine", "stub", environment=starts.environment) as daemon:
        (daemon.home / "ponder.toml").write_text(f"max_running_batch = 1\nmax_running_interactive = 1\n"
                                                 f"ageing_s = {AGEING_S if PLANTED != 'never_ages' else 1000}\n")
        daemon.start()
        asks = [Asks(daemon, number) for number in range(3)]  # one runs, at least one waits
        time.sleep(0.3)
        slowest, quickest = 0.0, 1e9
        for number in range(AGEING_JOBS):
            began = now_ms()
            job_id = daemon.submit(f"batch {number} [[stub tokens=5 think=0 rate=1000]]").json["job_id"]
            accepted = now_ms()
            job = daemon.wait_terminal(job_id, AGEING_S + 5)
            check(job["state"] in TERMINAL, f"a batch job starts beside asks that never end: {job['state']}")
            seq = audit.rows(daemon.home, "select seq from job where id = ?", (job_id,))[0]["seq"]
            times = [start[4] for start in starts.seen() if start[0] == seq]
            if not times:
                break
            slowest, quickest = max(slowest, (times[0] - began) / 1000), min(quickest, (times[0] - accepted) / 1000)
        for thread in asks:
            thread.over = True
        for thread in asks:
            thread.join()
        asks_took = max(max(thread.took) for thread in asks)
        check(slowest <= AGEING_S + ASK_S + LATE_S, f"a batch job waited {slowest:.2f} s beside asks, it ages in {AGEING_S} s")
        check(quickest >= AGEING_S - 0.05, f"a batch job went before asks after {quickest:.2f} s, it ages in {AGEING_S} s")
        check(asks_took <= 3 * ASK_S + LATE_S, f"an ask of {ASK_S} s behind two others took {asks_took:.2f} s")
        figure(10, f"{AGEING_JOBS} batch jobs beside asks without a pause, ageing_s = {AGEING_S:.0f}: start after at most",
               f"{slowest:.2f} s", f"{AGEING_S + ASK_S + LATE_S:.2f} s")
        behind(daemon)
    starts.close()


def behind(daemon):
    """Many batch jobs wait: an ask and a turn of a chat go past them."""
    for number in range(BEHIND):
        daemon.submit(f"waits {number} [[stub tokens=200 think=0 rate=100]]")
    worst = 0.0
    for number in range(size(5, 50)):
        began = time.monotonic()
        job = daemon.wait_terminal(daemon.submit(f"asks {number} [[stub tokens=2 think=0 rate=1000]]", kind="ask").json["job_id"], 10)
        check(job["state"] == "completed", f"an ask behind batch jobs completes: {job['state']}")
        reply = daemon.call("POST", "/v1/chat/completions", {"model": "stub", "messages": [
            {"role": "user", "content": f"turn {number} [[stub tokens=2 think=0 rate=1000]]"}]})
        check(reply.status == 200, f"a turn behind batch jobs is answered: {reply.status}")
        worst = max(worst, time.monotonic() - began)
    check(worst <= 2 * LATE_S, f"an ask and a turn behind {BEHIND} batch jobs took {worst:.2f} s")
    figure(10, f"an ask and a turn of a chat while {BEHIND} batch jobs wait: at most", f"{worst * 1000:.0f} ms",
           f"{2000 * LATE_S:.0f} ms")


def main():
    clock = MovedClock(wall_timers=PLANTED == "wall_timers")
    if PLANTED != "never_ages":
        lanes(clock)
    if PLANTED in (None, "never_ages"):
        ageing()
    clock.close()
    finish("order")


main()
