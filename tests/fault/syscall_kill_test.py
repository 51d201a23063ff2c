#!/usr/bin/env python3
"""The daemon dies at its k-th system call, for every k: nothing that it has told may be lost.

strace ends the daemon with SIGKILL at the k-th pwrite64, fdatasync, fsync, ftruncate, unlink, rename,
sendmsg, sendto or write of one of its threads, while one script submits, streams, reads, cancels, pins, continues, deletes and
prunes. Then the daemon is started again: what the script was told must hold, every audit query must
find nothing, and what is left must run to its end. Three beginnings, since calls are counted by thread
and the first thread opens the database: an empty directory, a queue that a dead daemon left, and a
queue in order, in which the sweep is the queue thread's. Every fourth k in the short size.

One run more is only looked at: from the first accepted job until the stop nobody opens or closes a file
of the database, neither the daemon nor a command beside it.

Planted: late_commit, two_commits (of the end of a job), looks_beside (a second open of ponder.db).
"""
import concurrent.futures
import http.client
import os
import pathlib
import shutil
import signal
import re
import sqlite3
import subprocess
import tempfile
import time

from profile import FULL, figure, size  # first: it knows where harness is
import audit
from harness import BIN, PLANTED, TERMINAL, Daemon, breaches, check, finish, planted_sqlite, wait_until

UNREACHABLE = (OSError, http.client.HTTPException, ValueError)
AT_ONCE = 8  # a run mostly waits
CALLS = ("pwrite64", "fdatasync", "ftruncate", "sendmsg", "sendto", "write")
FEW = ("unlink", "rename")  # links and old names: a handful in a life


class Cut(Exception):
    """The daemon is gone."""


class Script:
    """The canonical work of one client, and all that it was told."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.labels = {}      # label: id told
        self.sent = set()     # labels sent
        self.ended = {}       # id: (state, reason) told
        self.texts = {}       # id: whole answer told
        self.events = {}      # id: bytes of text that events told
        self.gone, self.pinned, self.expired = set(), set(), set()
        self.finished = False

    def call(self, method, target, body=None, want=(200, 201, 204)):
        try:
            reply = self.daemon.call(method, target, body, timeout=20)
            answer = reply.json
        except UNREACHABLE:
            raise Cut from None
        check(reply.status in want, f"{method} {target} is {reply.status} {reply.body[:200]}")
        for job in [answer] if isinstance(answer, dict) and "job_id" in answer and "reason" in answer else []:
            if job["state"] in TERMINAL - {"expired"}:
                self.ended[job["job_id"]] = (job["state"], job["reason"])
        return answer

    def submit(self, label, markers, **fields):
        self.sent.add(label)
        task = {} if "continue_from" in fields and fields.get("mode") == "resume" else {
            "task": f"script {label} [[stub {markers}]]"}
        answer = self.call("POST", "/v1/jobs", {**task, "label": label, **fields})
        if answer and "job_id" in answer:
            self.labels[label] = answer["job_id"]
        return answer["job_id"]

    def wait(self, job_id):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if self.call("GET", f"/v1/jobs/{job_id}?wait_s=5")["state"] in TERMINAL:
                return
        check(False, f"{job_id} ends within 20 s")

    def read(self, job_id):
        page = self.call("GET", f"/v1/jobs/{job_id}/result?part=partial")
        if page["state"] == "completed":
            self.texts[job_id] = page["text"]

    def run(self):
        try:
            self.work()
            self.finished = True
        except Cut:
            pass

    def work(self):
        long = self.submit("long", "tokens=20000 rate=400", max_answer_tokens=10000)
        first = self.submit("first", "tokens=30 think=5 rate=500", idempotency_key="first")
        ask = self.submit("ask", "tokens=10 rate=1000", kind="ask")
        waiting = self.submit("waiting", "tokens=10 rate=1000")
        self.call("POST", f"/v1/jobs/{waiting}/cancel")
        self.call("POST", f"/v1/jobs/{waiting}/cancel")
        self.call("POST", f"/v1/jobs/{long}/cancel")
        self.wait(first)
        self.read(first)
        self.call("POST", f"/v1/jobs/{first}/pin", {"pinned": True})
        self.pinned.add(first)
        again = self.submit("first", "tokens=30 think=5 rate=500", idempotency_key="first")
        check(again == first, f"the same key is the same job: {first}, then {again}")
        resumed = self.submit("resumed", "", continue_from=long, mode="resume", max_answer_tokens=300)
        self.submit("follow", "tokens=10 rate=1000", continue_from=first)
        self.wait(ask)
        self.read(ask)
        self.call("DELETE", f"/v1/jobs/{waiting}")
        self.gone.add(waiting)
        pruned = self.call("POST", "/v1/jobs/prune", {"workspace": "", "unread": False, "dry_run": False})
        self.expired |= {job_id if isinstance(job_id, str) else job_id.get("job_id") for job_id in
                         (pruned or {}).get("pruned", (pruned or {}).get("job_ids", []))}
        self.call("POST", f"/v1/jobs/{resumed}/cancel")
        self.wait(self.labels["follow"])


def holds(daemon, script, when):
    """What was told is still true: by the rows of the dead daemon. Returns how much of it is lost."""
    before = len(breaches)
    rows = {row["id"]: row for row in audit.rows(daemon.home)}
    by_label = {}
    for row in rows.values():
        by_label.setdefault(row["label"], []).append(row["id"])
    for label, job_id in script.labels.items():
        check(job_id in rows or job_id in script.gone or (label == "waiting" and job_id in script.ended),
              f"accepted job {label} is lost{when}")
    for label in script.sent:
        check(len(by_label.get(label, [])) <= 1, f"{label} stands twice{when}")
    for job_id, (state, reason) in script.ended.items():
        row = rows.get(job_id)
        if row and row["state"] != "expired":
            check((row["state"], row["reason"]) == (state, reason or ""),
                  f"{row['label']} was told to be {state}, it is {row['state']}{when}")
    for job_id, text in script.texts.items():
        row = rows.get(job_id)
        if row and row["state"] != "expired":
            check(audit.stored_text(daemon.home, job_id)[1] == text, f"the answer told of {row['label']} changed{when}")
    for job_id in script.gone:
        check(job_id not in rows, f"a deleted job is back{when}")
    for job_id in script.pinned:
        check(rows[job_id]["pinned"] == 1, f"a pin is lost{when}")
    for job_id in script.expired - script.gone:
        check(rows[job_id]["state"] == "expired", f"a pruned job is back{when}")
    audit.audit(daemon.home, when)
    return len(breaches) - before


def idle(daemon):
    queue = daemon.try_health().get("queue")
    return queue and queue["running"] == 0 and queue["batch"] == 0 and queue["ask"] == 0


def copy_of(template):
    home = tempfile.mkdtemp(prefix="ponder-e2e-")
    if template:
        shutil.copytree(template, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
    return home


def one_run(template, call, k, only_start):
    """(did the daemon die there, how much is lost)."""
    home = copy_of(template)
    trace = ["strace", "-f", "-qq", "-b", "execve", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={call}",
             "-e", f"inject={call}:signal=SIGKILL:when={k}"]
    daemon = Daemon("--engine", "stub", home=home, before=trace, environment=planted_sqlite(PLANTED))
    try:
        daemon.start(wait_ready=False)
        wait_until(lambda: daemon.process.poll() is not None or daemon.try_health().get("state"), 20,
                   "the daemon serves or dies")
        script = Script(daemon)
        if only_start:
            killed = daemon.process.poll() is not None
            end(daemon, signal.SIGKILL)
        else:
            script.run()  # and then it is stopped, which writes as well
            killed = end(daemon, signal.SIGTERM) != 0
        when = f" after a kill at {call} {k}"
        after = Daemon("--engine", "stub", home=home)
        lost = holds(after, script, when) if (pathlib.Path(home) / "ponder.db").exists() and is_database(home) else 0
        after.start(wait_ready=False)
        wait_until(lambda: after.try_health().get("state"), 20, f"the daemon answers{when}")
        for label in ("long", "resumed"):  # they would take their time
            for row in audit.rows(home, "select id from job where label = ?", (label,)):
                after.call("POST", f"/v1/jobs/{row['id']}/cancel")
        wait_until(lambda: idle(after), 30, f"what is left ends{when}")
        rows = audit.rows(home, "select label, state, reason from job where state in ('queued', 'running', 'failed')")
        check(not rows, f"every job ends well{when}: {rows[:3]}")
        lost += holds(after, script, when + " and a new start") + (len(rows) > 0)
        end(after, signal.SIGKILL)
        return killed, lost
    finally:
        shutil.rmtree(home, ignore_errors=True)


def is_database(home):
    """Killed while the schema was made, in several steps: there is nothing to look at yet."""
    try:
        return audit.rows(home, "select seal from job limit 1") is not None
    except sqlite3.Error:
        return False


def end(daemon, number):
    """A signal for the daemon itself: strace is only its parent, and ends as it does. The exit status."""
    lock = pathlib.Path(daemon.home) / "ponderd.lock"
    if daemon.process.poll() is None:
        try:
            os.kill(int(lock.read_text() or 0) if daemon.before else daemon.process.pid, number)
        except (ProcessLookupError, FileNotFoundError):
            pass  # it has just died
    return daemon.process.wait(20)


def sweep(name, template, call, step, only_start=False, k=1, at_once=AT_ONCE):
    """Every step-th k, from this one on, until the daemon outlives the script. Returns how many it died at."""
    died = lost = 0
    alive = 0
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        while alive == 0:
            ks = [k + step * i for i in range(at_once)]
            k = ks[-1] + step
            for killed, missing in pool.map(lambda n: one_run(template, call, n, only_start), ks):
                died += killed
                alive += not killed
                lost += missing
            if PLANTED and breaches:
                break
    print(f"{name}, {call}: died at {died} of every {step}. index", flush=True)
    return died, lost


OPENED = re.compile(r"^\d+ +([\d.]+) (?:\w+\((?:AT_FDCWD[^,]*, )?\"|close\(\d+<)([^\">]*/ponder\.db(?:-\w+)?)[\">]")


def opened_beside(trace, since, until):
    """Opens and closes of the database's files in what strace -ttt -y recorded, between two times."""
    found = (OPENED.match(line) for line in trace.splitlines())
    return [match.group(0)[:200] for match in found if match and since < float(match.group(1)) < until]


# 7a row 10: a descriptor of the live database that somebody closes takes SQLite's locks with it.
def no_second_open():
    trace = tempfile.NamedTemporaryFile(prefix="ponder-trace-")
    before = ["strace", "-f", "-qq", "--seccomp-bpf", "-y", "-ttt", "-o", trace.name,
              "-e", "trace=open,openat,openat2,creat,close"]
    with Daemon("--engine", "stub", before=before, environment=planted_sqlite(PLANTED)) as daemon:
        daemon.start()
        since = time.time()
        Script(daemon).run()
        beside = []
        for arguments in (["health"], ["ps", "-a"], ["doctor"]) if not PLANTED else ():
            with tempfile.NamedTemporaryFile(prefix="ponder-trace-") as log:
                done = subprocess.run([*before[:before.index(trace.name)], log.name, "-e", before[-1],
                                BIN / "ponder", "--home", daemon.home, *arguments], capture_output=True, timeout=30)
                seen = pathlib.Path(log.name).read_text(errors="replace")
                check("openat(" in seen and done.returncode == 0, f"ponder {arguments[0]} ran, traced: exit {done.returncode}")
                beside += opened_beside(seen, 0, float("inf"))
        until = time.time()
        end(daemon, signal.SIGTERM)
        seen = pathlib.Path(trace.name).read_text(errors="replace")
        check(opened_beside(seen, 0, since) and opened_beside(seen, until, float("inf")),
              "the daemon's own open and close are seen")
        beside += opened_beside(seen, since, until)
        check(not beside, f"nobody opens or closes a live database's files beside SQLite: {beside[:3]}")
    figure(1, "files of the live database opened or closed beside SQLite", len(beside), 0)


def make_template(orphans):
    """A home with a few ended jobs, and with what a daemon left that was killed at work."""
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        for number in range(2):
            job_id = daemon.submit(f"old {number} [[stub tokens=10 rate=1000]]", label=f"old{number}").json["job_id"]
            daemon.wait_terminal(job_id)
        if orphans:
            running = daemon.submit("orphan [[stub tokens=300 rate=300]]", label="orphan").json["job_id"]
            daemon.submit("asked [[stub tokens=300 rate=300]]", label="asked", kind="ask")
            daemon.submit("queued [[stub tokens=10 rate=300]]", label="queued")
            wait_until(lambda: len(daemon.text(running)) > 200, 10, "the job to be left runs")
            daemon.kill()
        else:
            daemon.stop()
        return copy_of(daemon.home)


def can_trace():
    try:
        done = subprocess.run(["strace", "-o", "/dev/null", "-e", "trace=exit_group", "true"], capture_output=True, text=True)
        return check(done.returncode == 0, f"strace must be able to trace a child here, but: {done.stderr.strip()[:200]}")
    except OSError as problem:
        return check(False, f"strace is needed (scripts/dependencies test): {problem}")


if can_trace() and PLANTED in (None, "looks_beside"):
    no_second_open()
if PLANTED != "looks_beside" and can_trace():
    step = size(4, 1)
    began = time.monotonic()
    ordered, left = make_template(False), make_template(True)
    died = lost = 0
    if PLANTED:
        # Between the two commits lie two to four writes: every index, from where the first job may end.
        plan = [("in order", ordered, "pwrite64", *((1, False, 100) if PLANTED == "two_commits" else (4, False)))]
    else:
        plan = [("empty", None, call, step, True) for call in ("pwrite64", "fdatasync", "fsync")]
        plan += [("left behind", left, "pwrite64", step, True),
                 ("left behind", left, "fdatasync", 1, True)]
        plan += [("in order", ordered, call, step, False) for call in CALLS]
    def few(call):  # side by side: most of these runs outlive their call
        return sweep("in order", ordered, call, 1, at_once=2)
    with concurrent.futures.ThreadPoolExecutor(len(FEW)) as pool:
        swept = [sweep(*part) for part in plan] + (list(pool.map(few, FEW)) if not PLANTED else [])
    for more, missing in swept:
        died, lost = died + more, lost + missing
    for home in (ordered, left):
        shutil.rmtree(home, ignore_errors=True)
    every = "every" if FULL else "every fourth"
    check(died > size(60, 240) or PLANTED, f"the sweep reaches the daemon's writes: it died {died} times")
    figure(1, f"killed at {every} {', '.join(CALLS + FEW + ('fsync',))} ({died} kills): lost", lost, "0")
    print(f"sweep: {time.monotonic() - began:.1f} s", flush=True)
finish("system calls")
