#!/usr/bin/env python3
"""The wall clock jumps, by a week, back by two hours, at random, over a suspended night, under the real
daemon, its worker, ponder and ponder-mcp (moved_clock.py):

  timers     waits over HTTP, of ponder and of ponder-mcp, deadlines, the stall bound and an idle
             connection end when they must, to 250 ms; a job that is at work is not touched
  order      ids grow in the order of submission, also over restarts in an earlier hour
  keeping    what may be kept is not pruned while the daemon lives, whatever the clock says; what a
             start finds to be old is; nothing that has ended runs again, also after kill -9

P11. Planted: wall_timers (the programs time by the wall clock), forgets_last_id (a start begins its
ids anew).
"""
import json
import pathlib
import random
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import audit

from harness import BIN, PLANTED, Daemon, Mcp, UnixConnection, check, finish, os, planted_sqlite, subprocess, time, wait_until
from moved_clock import DAY, HOUR, MovedClock
from profile import figure, size, sync_factor

OFF_MS = 250 * sync_factor()
WAITS, ROUNDS, ROUND_S = size(60, 500), size(1, 8), size(4, 10)
LIVES = size(3, 30)
KEEP_READ, KEEP_DAYS = 5, 30
random_jumps = random.Random(11)


def some_jump(clock):
    """One of the jumps; the clock stays within some years of now."""
    if abs(clock.offset) > 400 * DAY:
        return clock.jump(-clock.offset)
    kind = random_jumps.randrange(5)
    if kind == 0:
        clock.jump(7 * DAY)
    elif kind == 1:
        clock.jump(-2 * HOUR)
    elif kind == 2:
        clock.suspend(8 * HOUR)
    else:
        clock.jump(random_jumps.uniform(-60, 60) * DAY)


class Timed(threading.Thread):
    """Something that must take `seconds`; `work` may return what went wrong."""

    def __init__(self, name, seconds, work):
        super().__init__()
        self.name, self.seconds, self.work, self.wrong = name, seconds, work, None
        self.took = 0.0
        self.start()

    def run(self):
        began = time.monotonic()
        try:
            self.wrong = self.work()
        except Exception as error:  # told by check_all, in the main thread
            self.wrong = f"{type(error).__name__}: {error}"
        self.took = time.monotonic() - began

    def off_ms(self):
        return (self.took - self.seconds) * 1000


def must_be(job, state, reason):
    return None if (job["state"], job["reason"]) == (state, reason) else f"it is {job['state']}({job['reason']})"


def end_of(daemon, job_id, state, reason):
    return must_be(daemon.wait_terminal(job_id, 4 * ROUND_S), state, reason)


def deadline(daemon, seconds):
    job_id = daemon.submit(f"deadline {seconds} [[stub fault=endless_thinking rate=200]]", deadline_s=seconds,
                           force_new=True).json["job_id"]
    return end_of(daemon, job_id, "incomplete", "deadline")


def stall(daemon, number):
    job_id = daemon.submit(f"stalls {number} [[stub tokens=50 think=0 rate=5000]] [[stub fault=hang after=5]]").json["job_id"]
    return end_of(daemon, job_id, "incomplete", "stalled")


def cli_wait(daemon, clock, job_id, seconds):
    done = subprocess.run([BIN / "ponder", "--home", daemon.home, "wait", "--wait-s", str(seconds), job_id],
                          capture_output=True, text=True, env={**os.environ, **clock.environment}, timeout=60)
    return None if done.returncode == 124 else f"exit {done.returncode}: {done.stderr}"


def mcp_wait(mcp, job_id, seconds):
    result = mcp.tool("status", job_id=job_id, wait_s=seconds)
    state = result.get("structuredContent", {}).get("state")
    return None if state == "running" else f"it says {state}: {result}"


def idle_connection(daemon):
    connection = UnixConnection(daemon.socket, 10)
    connection.connect()
    mine = connection.sock
    for _ in range(ROUND_S * 2):
        connection.request("GET", "/health")
        connection.getresponse().read()
        if connection.sock is not mine:
            return "the connection was closed"
        time.sleep(0.45)
    connection.close()
    return None


def timers_by_the_wall(pid):
    """The kernel's timers of a process that a jump of the wall clock moves."""
    found = []
    for entry in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if "clockid" in lines and int(lines["clockid"]) == time.CLOCK_REALTIME:
            found.append(entry.name)
    return found


def timers(clock):
    """Rounds of things that take their time while the clock jumps five times a second."""
    with Daemon("--engine", "stub", environment=clock.environment) as daemon, \
            Daemon("--engine", "stub", environment=clock.environment) as stalling:
        (daemon.home / "ponder.toml").write_text("keep_alive_s = 5\nmax_connections = 4000\nmax_running_batch = 6\n")
        (stalling.home / "ponder.toml").write_text("stall_s = 2\n")
        daemon.start()
        stalling.start()
        worker = wait_until(lambda: daemon.try_health()["engine"]["pid"], 10, "a worker")
        for pid in (daemon.process.pid, worker):
            check(clock.is_used_by(pid), f"the process {pid} lives by the moved clock")
            check(not timers_by_the_wall(pid), f"the process {pid} has timers by the wall clock")
        tokens = ROUNDS * (ROUND_S + 5) * 20
        at_work = [daemon.submit(f"slow {n} [[stub tokens={tokens} think=0 rate=20]]").json["job_id"] for n in range(2)]
        for job_id in at_work:  # from here on neither its state nor its phase changes
            wait_until(lambda: daemon.job(job_id)["phase"] == "answering", 10, "a job is at work")
        mcp = Mcp(daemon.home, environment=clock.environment)
        began = time.monotonic()
        seen = [one_round(daemon, stalling, clock, mcp, at_work, number) for number in range(ROUNDS)]
        passed = time.monotonic() - began
        mcp.close()
        for job_id in at_work:
            job = daemon.job(job_id)
            check(job["state"] == "running" and job["attempt"] == 1, f"a job at work goes on: {job['state']}({job['reason']})")
            check(abs(job["run_s"] - passed) < 2 and job["queue_s"] >= 0,
                  f"after {passed:.1f} s its times are queue_s {job['queue_s']}, run_s {job['run_s']}")
    figure(11, f"{ROUNDS * (WAITS + 5)} waits, deadlines and stalls under {clock.jumps} jumps: off by at most",
           f"{max(max(late, early) for late, early in seen):.0f} ms", f"<= {OFF_MS:.0f} ms")


def one_round(daemon, stalling, clock, mcp, at_work, number):
    """How late and how early anything was, in ms."""
    plan = {"seed": number, "again": False, "kill": 0, "jobs": at_work, "still": at_work, "seconds": 0.5,
            "bounds": [0.3, ROUND_S], "waits": WAITS}
    waits = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("wait_client.py")), str(daemon.socket)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    waits.stdin.write(json.dumps(plan) + "\n")
    waits.stdin.flush()
    timed = [Timed("a deadline of 1 s", 1, lambda: deadline(daemon, 1)),
             Timed(f"a deadline of {ROUND_S - 1} s", ROUND_S - 1, lambda: deadline(daemon, ROUND_S - 1)),
             Timed("the stall bound of 2 s", 2, lambda: stall(stalling, number)),
             Timed("status of ponder-mcp", 3, lambda: mcp_wait(mcp, at_work[1], 3)),
             Timed("ponder wait --wait-s 3", 3, lambda: cli_wait(daemon, clock, at_work[0], 3))]
    idle = Timed("an idle connection", ROUND_S, lambda: idle_connection(daemon))
    end = time.monotonic() + ROUND_S - 0.3
    while time.monotonic() < end:
        time.sleep(0.17)
        some_jump(clock)
    try:
        report = json.loads(waits.communicate(timeout=ROUND_S + 10)[0])
    except subprocess.TimeoutExpired:
        waits.kill()
        check(False, "waits hang")
        return 0.0, 0.0
    for thread in [*timed, idle]:
        thread.join()
    check(report["bad_count"] == 0 and set(report["statuses"]) <= {"200"} and report["answered"] == report["begun"],
          f"{report['begun'] - report['answered']} waits did not return, others went wrong: {report['bad'][:2]}")
    check(report["late_ms"] <= OFF_MS, f"a wait came back {report['late_ms']:.0f} ms after its bound")
    check(report["early_ms"] <= OFF_MS, f"a wait came back {report['early_ms']:.0f} ms early")
    for thread in [*timed, idle]:
        check(thread.wrong is None, f"{thread.name}: {thread.wrong}")
    for thread in timed:
        check(abs(thread.off_ms()) <= OFF_MS, f"{thread.name} was off by {thread.off_ms():.0f} ms")
    off = [thread.off_ms() for thread in timed]
    return max(report["late_ms"], *off), max(report["early_ms"], -min(off))


class Lives:
    """Daemon after daemon in one home: the jobs in the order of submission, and what ended."""

    def __init__(self, daemon):
        self.daemon, self.ids, self.ended = daemon, [], {}
        self.unordered, self.again = 0, 0

    def submit(self, **fields):
        text = f"number {len(self.ids)} [[stub tokens=30 think=0 rate=3000]]"
        job_id = self.daemon.submit(fields.pop("task", text), **fields).json["job_id"]
        if self.ids and not check(job_id > self.ids[-1], f"an id sorts before an earlier one: {self.ids[-1]}, then {job_id}"):
            self.unordered += 1
        self.ids.append(job_id)
        return job_id

    def run(self, **fields):
        job_id = self.submit(**fields)
        job = self.daemon.wait_terminal(job_id, 20)
        check(job["state"] == "completed" and job["queue_s"] >= 0, f"a job ends well: {job['state']}, {job['queue_s']}")
        self.ended[job_id] = audit.rows(self.daemon.home, "select claims, text_sha256 from job where id = ?", (job_id,))
        return job_id

    def check_all(self, when):
        """Nothing that has ended ran again; the list is in the order of submission."""
        for job_id, was in self.ended.items():
            now = audit.rows(self.daemon.home, "select claims, text_sha256 from job where id = ?", (job_id,))
            self.again += not check(now == was, f"a job that has ended ran again {when}: {job_id}")
        listed = [job["job_id"] for job in self.daemon.all_jobs()]
        kept = [job_id for job_id in reversed(self.ids) if job_id in set(listed)]
        check(listed == kept, f"the list is not in the order of submission {when}")


def order(clock):
    with Daemon("--engine", "stub", environment={**clock.environment, **preloads(clock)}) as daemon:
        daemon.start()
        lives = Lives(daemon)
        starts = [-2 * HOUR, 7 * DAY, -60 * DAY] + [random_jumps.uniform(-60, 60) * DAY for _ in range(LIVES)]
        for number in range(LIVES):
            for _ in range(3):
                lives.run()
                some_jump(clock)
            cut = lives.submit(task=f"cut {number} [[stub tokens=4000 think=0 rate=4000]]")
            wait_until(lambda: daemon.job(cut)["state"] == "running", 10, "a job runs")
            if number % 2:
                daemon.kill(signal.SIGKILL)
            else:
                daemon.stop()
            clock.jump(starts[number])
            daemon.start()
            lives.run()
            check(daemon.wait_terminal(cut, 20)["state"] == "completed", "a job that was cut goes on")
            lives.check_all("after a start")
        audit.audit(daemon.home, " under a clock that jumps")
        figure(11, f"{len(lives.ids)} jobs, {LIVES} starts in another hour: ids out of order, run again",
               f"{lives.unordered}, {lives.again}", "0, 0")


def preloads(clock):
    """Both libraries, where a bug of planted_sqlite is wanted."""
    bug = planted_sqlite(PLANTED if PLANTED != "wall_timers" else None)
    return {**bug, "LD_PRELOAD": ":".join(e["LD_PRELOAD"] for e in (bug, clock.environment) if e)}


def keeping(clock):
    """Ages: by the wall clock between daemons, and in one daemon by what has passed as well."""
    def states(ids):
        return {row["id"]: row["state"] for row in audit.rows(daemon.home, "select id, state from job") if row["id"] in ids}

    with Daemon("--engine", "stub", environment=clock.environment) as daemon:
        (daemon.home / "ponder.toml").write_text(f"keep_read = {KEEP_READ}\nkeep_unread_days = {KEEP_DAYS}\n")
        daemon.start()
        lives = Lives(daemon)
        unread = [lives.run() for _ in range(6)]
        read = [lives.run() for _ in range(KEEP_READ)]
        for job_id in read:
            daemon.text(job_id)
        before = clock.jumps
        for seconds in [7 * DAY, -2 * HOUR, 60 * DAY, -100 * DAY, 400 * DAY] + [
                random_jumps.uniform(-60, 60) * DAY for _ in range(size(3, 40))]:
            clock.suspend(seconds) if seconds == 60 * DAY else clock.jump(seconds)
            lives.run()  # a job that ends is what makes it look for old ones
            time.sleep(0.15)
        early = [state for state in states(unread + read).values() if state != "completed"]
        check(not early, f"{len(early)} results are pruned early, by a clock that jumped")
        figure(11, f"results pruned early by {clock.jumps - before} jumps of a living daemon", len(early), 0)

        daemon.stop()
        clock.jump(-clock.offset - 2 * HOUR)
        daemon.start()
        lives.run()
        check(set(states(unread + read).values()) == {"completed"}, "nothing is pruned by a start two hours ago")
        daemon.stop()
        clock.jump((KEEP_DAYS + 1) * DAY)
        daemon.start()
        wait_until(lambda: set(states(unread).values()) == {"expired"}, 5, "a start that finds old results prunes them")
        check(set(states(read).values()) == {"completed"}, "what was read is kept by its number and not by its age")


def main():
    clock = MovedClock(wall_timers=PLANTED == "wall_timers")
    if PLANTED != "forgets_last_id":
        timers(clock)
        clock.jump(-clock.offset)
    if PLANTED != "wall_timers":
        order(clock)
    if not PLANTED:
        clock.jump(-clock.offset)
        keeping(clock)
    clock.close()
    finish("clock")


main()
