#!/usr/bin/env python3
"""What a dead daemon or worker leaves behind comes back, and what kills the worker does not.

after_kills    kill -9 with up to 50 jobs running: two seconds later none is the dead daemon's, all run
ten_thousand   rows that say running under a dead instance: one start moves every one, by its kind
poison         a job that kills the worker fails after three attempts while 20 others finish
nobodys_fault  SIGTERM or SIGKILL of the worker, a lost device, a stopped daemon: no attempt is counted
worker_gone    the next job starts within two seconds of a worker's death, however often
long_job       a job longer than every timer is run once
all_at_once    kill -9 of daemon, worker and ponder-mcp together

Planted: few_orphans, never_death, always_death.
"""
import os
import random
import signal
import sqlite3
import time

from profile import figure, size  # first: it knows where harness is
import audit
import seals
from harness import PLANTED, Daemon, Mcp, check, finish, planted_sqlite, wait_until

SEED = int(os.environ.get("PONDER_SEED", random.randrange(1 << 32)))
CHANCE = random.Random(SEED)


def new_daemon(settings=""):
    daemon = Daemon("--engine", "stub", environment=planted_sqlite(PLANTED))
    (daemon.home / "ponder.toml").write_text("max_queued = 100000\nkeep_unread = 100000\n" + settings)
    return daemon


def count(daemon, condition, values=()):
    return audit.rows(daemon.home, f"select count(*) as n from job where {condition}", values)[0]["n"]


# T12, sprocket#1091, console#188, LifeOS#768: running for ever after a restart, and a cancel does nothing.
def after_kills(kills):
    most, slowest, burnt, restarted = 50, 0, 0, 0
    with new_daemon(f"max_running_batch = {most}\n") as daemon:
        daemon.start()
        for number in range(most):
            daemon.submit(f"orphan {number} [[stub tokens=100000 rate=10]]", max_answer_tokens=8000)
        dead = set()
        for kill in range(kills):
            wait_until(lambda: count(daemon, "state = 'running'") >= 2, 10, "jobs run")
            time.sleep(CHANCE.uniform(0, 0.6))
            running = {row["id"] for row in audit.rows(daemon.home) if row["state"] == "running"}
            dead |= {row["instance"] for row in audit.rows(daemon.home) if row["instance"]}
            daemon.kill()
            began = time.monotonic()
            daemon.start(wait_ready=False)

            def back():
                try:
                    now = audit.rows(daemon.home, "select id, state, instance, attempt from job")
                except sqlite3.OperationalError:
                    return False
                return all(row["state"] == "running" and row["instance"] not in dead for row in now if row["id"] in running)
            wait_until(back, 10, f"all that ran run again after kill {kill}")
            slowest = max(slowest, time.monotonic() - began)
            restarted += len(running)
        burnt = count(daemon, "deaths > 0")
        check(slowest <= 2, f"what ran runs again within 2 s of a start, it took {slowest:.2f} s")
        check(burnt == 0, f"a killed daemon costs no attempt, it cost {burnt} jobs one")
        one = audit.rows(daemon.home, "select id from job where state = 'running' limit 1")[0]["id"]
        wait_until(lambda: daemon.text(one), 5, "the partial text is readable")
        check(daemon.call("POST", f"/v1/jobs/{one}/cancel").json["state"] == "cancelled", "a cancel has an answer")
        audit.audit(daemon.home, " after kills with many running")
    figure(7, f"{kills} kills with up to {most} running ({restarted} orphans): all run again after at most",
           f"{slowest:.2f} s", "2 s")


# Row 3, river#1258: 5,133 jobs running for up to 91 days, the rescuer behind a full batch.
def ten_thousand(orphans):
    with new_daemon() as daemon:
        daemon.start()
        daemon.wait_terminal(daemon.submit("model [[stub tokens=1 rate=1000]]").json["job_id"])
        daemon.stop()
        kinds = {"batch": "queued", "ask": "interrupted", "told": "queued", "cancelled": "cancelled"}
        with sqlite3.connect(daemon.home / "ponder.db") as db:
            db.create_function("crc", -1, audit.crc)
            body = db.execute("select body from request limit 1").fetchone()[0]
            for n in range(orphans):
                kind = list(kinds)[n % len(kinds)]
                seq = db.execute(
                    "insert into job (id, lane, state, body_sha256, effort_requested, created_ms, label, told) "
                    "values (?, ?, 'queued', randomblob(32), 'medium', 1800000000000, ?, ?)",
                    (f"0orphan{n:019d}", "ask" if kind in ("ask", "told") else "batch", kind, kind == "told")).lastrowid
                db.execute("insert into request (job, body) values (?, ?)", (seq, body))
                for number, state in enumerate(("queued", "running"), 1):
                    db.execute("insert into state_change (job, seq, position, text_bytes, state, attempt, at_ms) "
                               "values (?, ?, ?, 0, ?, 0, 1800000000000)", (seq, number, number, state))
                db.execute("update job set state = 'running', instance = 'dead', claims = 1, attempt = 1, "
                           "cancel_requested = ? where seq = ?", (kind == "cancelled", seq))
                if n % 10 == 0:
                    text = b"some text"
                    db.execute("insert into chunk (job, seq, attempt, channel, text, token_count, tokens, crc32) "
                               "values (?, 0, 1, 1, ?, 0, x'', ?)",
                               (seq, text, audit.chunk_crc(seq, 0, 1, 1, text, 0, b"")))
            seals.seal(db)
            orphan = "instance = 'dead'"
            db.execute("update state_change set crc32 = crc(job, seq, position, text_bytes, cut, state, reason, attempt, "
                       f"at_ms, note) where job in (select seq from job where {orphan})")
            db.execute("update job set request_crc32 = (select crc(r.job, r.body) from request r where r.job = job.seq) "
                       f"where {orphan}")
            db.execute(f"update job set seal = crc({audit.columns_under_seal(db)}) where {orphan}")
        db.close()
        began = time.monotonic()
        daemon.start(wait_ready=False)
        wait_until(lambda: daemon.try_health().get("state"), 3 if PLANTED else 30, "the daemon serves")
        took = time.monotonic() - began
        left = count(daemon, "instance = 'dead'")
        check(left == 0, f"one start moves every row of a dead daemon, {left} of {orphans} still say running")
        check(took <= 2, f"{orphans} rows are moved within 2 s of the start, it took {took:.2f} s")
        wrong = 0
        for kind, state in kinds.items():
            wrong += count(daemon, "label = ? and state <> ? and not (state in ('running', 'completed') and ? = 'queued')",
                           (kind, state, state))
        check(wrong == 0, f"each kind is moved by the table, {wrong} rows are not")
        if not PLANTED:
            audit.audit(daemon.home, f" after {orphans} orphans")
    figure(7, f"{orphans} rows running under a dead instance, one start: left, time", f"{left}, {took:.2f} s", "0, 2 s")


def poison():
    with new_daemon("max_running_batch = 4\n") as daemon:
        daemon.start()
        bad = daemon.submit("bad [[stub fault=crash after=10 tokens=100 rate=200]]").json["job_id"]
        tasks = [f"good {n} [[stub tokens=30 think=5 rate=300]]" for n in range(20)]
        good = [daemon.submit(task).json["job_id"] for task in tasks]
        job = daemon.wait_terminal(bad, 5 if PLANTED else 15)
        check((job["state"], job["reason"], job["attempt"]) == ("failed", "poison", 3),
              f"what kills the worker is poison after 3 attempts: {job['state']} {job['reason']} {job['attempt']}")
        done = 0
        for job_id, task in zip(good, tasks) if job["state"] == "failed" else ():
            other = daemon.wait_terminal(job_id, 30)
            whole = other["state"] == "completed" and daemon.text(job_id) == audit.pure_text(task, 30, 5)[1]
            done += check(whole, f"a job beside poison completes: {other['state']} {other['reason']}")
        audit.audit(daemon.home, " after poison")
    figure(7, "a job that kills the worker: attempts, others that finish of 20", f"{job['attempt']}, {done}", "3, 20")


def nobodys_fault(rounds):
    with new_daemon("max_running_batch = 4\n") as daemon:
        daemon.start()
        tokens = 100 * rounds  # a round takes less than a second
        tasks = [f"innocent {n} [[stub tokens={tokens} think=20 rate=100]]" for n in range(4)]
        ids = [daemon.submit(task, max_answer_tokens=8000).json["job_id"] for task in tasks]
        for number in range(rounds):
            wait_until(lambda: count(daemon, "state = 'running'") == 4 and daemon.try_health()["state"] == "busy", 10,
                       "the jobs run")
            time.sleep(CHANCE.uniform(0.05, 0.3))
            pid = daemon.try_health()["engine"]["pid"]
            os.kill(pid, (signal.SIGTERM, signal.SIGKILL)[number % 2])
            wait_until(lambda: daemon.try_health()["engine"]["pid"] not in (0, None, pid), 10, "another worker runs")
        burnt = count(daemon, "deaths > 0")
        check(burnt == 0, f"what is nobody's fault costs no attempt, it cost {burnt} jobs one")
        if burnt:
            return
        lost = daemon.submit("lost [[stub fault=device_lost after=5 tokens=50 rate=200]]", label="lost").json["job_id"]
        daemon.stop()
        daemon.start()
        wait_until(lambda: count(daemon, "state = 'running'") == 4, 10, "the jobs run after a stop")
        for job_id in ids[:2]:
            daemon.call("POST", f"/v1/jobs/{job_id}/cancel")
        wait_until(lambda: count(daemon, "claims > 1 and label = 'lost'") == 1, 15, "the lost device was tried again")
        job = daemon.job(lost)
        check(job["state"] in ("queued", "running"), f"a lost device fails no job: {job['state']} {job['reason']}")
        daemon.call("POST", f"/v1/jobs/{lost}/cancel")
        burnt = count(daemon, "deaths > 0")
        check(burnt == 0, f"what is nobody's fault costs no attempt, it cost {burnt} jobs one")
        for job_id, task in list(zip(ids, tasks))[2:] if not PLANTED else ():
            job = daemon.wait_terminal(job_id, 60)
            check(job["state"] == "completed" and daemon.text(job_id) == audit.pure_text(task, tokens, 20)[1],
                  f"it completes: {job['state']} {job['reason']}")
        audit.audit(daemon.home, " after faults of nobody")
    figure(7, f"{rounds} SIGTERM and SIGKILL of the worker, a lost device, a stop: attempts counted", burnt, "0")


# Row 4, solid_queue#751, #778: the supervisor lives, the worker is gone, nothing is dispatched.
def worker_gone(kills):
    slowest = 0
    with new_daemon() as daemon:
        daemon.start()
        for number in range(kills):
            wait_until(lambda: daemon.try_health().get("state") == "ready", 10, "the worker is there")
            os.kill(daemon.try_health()["engine"]["pid"], signal.SIGKILL)
            began = time.monotonic()
            job_id = daemon.submit(f"next {number} [[stub tokens=2 rate=1000]]").json["job_id"]
            job = daemon.wait_terminal(job_id, 10)
            slowest = max(slowest, time.monotonic() - began)
            check(job["state"] == "completed", f"the next job completes: {job['state']} {job['reason']}")
        check(slowest <= 2, f"the next job runs within 2 s of a worker's death, it took {slowest:.2f} s")
    figure(7, f"{kills} kill -9 of the worker: the next job is done after at most", f"{slowest:.2f} s", "2 s")


# Row 2, celery#5935: a job longer than the visibility timeout starts again.
def long_job():
    with new_daemon("".join(f"{key} = 1.0\n" for key in ("stall_s", "header_timeout_s", "body_timeout_s", "write_timeout_s",
                                                         "keep_alive_s", "ageing_s")) + "flush_ms = 1000\n") as daemon:
        daemon.start()
        task = "long [[stub tokens=60 rate=20]]"
        job_id = daemon.submit(task).json["job_id"]
        job = daemon.wait_terminal(job_id, 20)
        row = audit.rows(daemon.home, "select claims, attempt, run_ms from job where id = ?", (job_id,))[0]
        check(job["state"] == "completed" and row["claims"] == 1 and row["run_ms"] > 2500,
              f"a job of 3 s runs once where every timer is 1 s: {job['state']} {row}")
        check(daemon.text(job_id) == audit.pure_text(task, 60, 0)[1], "and has its text")


# Row 11, WSL#9667: everything is stopped at once when the last terminal closes.
def all_at_once(rounds):
    with new_daemon() as daemon:
        daemon.start()
        for number in range(rounds):
            mcp = Mcp(daemon.home, extra=("--no-start",))
            job_id = mcp.tool("submit", task=f"together {number} [[stub tokens=150 think=20 rate=150]]")["structuredContent"]["job_id"]
            mcp.begin("tools/call", {"name": "status", "arguments": {"job_id": job_id, "wait_s": 40}})
            wait_until(lambda: daemon.text(job_id), 10, "it answers")
            time.sleep(CHANCE.uniform(0, 0.5))
            told = daemon.text(job_id)
            worker = daemon.try_health()["engine"]["pid"]
            for process in (daemon.process.pid, worker, mcp.process.pid):
                os.kill(process, signal.SIGKILL)
            daemon.process.wait()
            mcp.process.wait()
            daemon.start()
            began = time.monotonic()
            job = daemon.job(job_id)
            check(job["state"] in ("queued", "running") and time.monotonic() - began < 1, f"it goes on: {job['state']}")
            other = Mcp(daemon.home, extra=("--no-start",))
            listed = other.tool("status")["structuredContent"]["jobs"]
            check(job_id in [entry["job_id"] for entry in listed], "status of a new ponder-mcp lists it")
            job = daemon.wait_terminal(job_id, 20)
            text = daemon.text(job_id)
            check(job["state"] == "completed" and text.startswith(told) and len(text.split(" ")) == 150,
                  f"it completes with its whole text: {job['state']} {job['reason']}, {len(text)} characters")
            other.close()
        audit.audit(daemon.home, " after kills of all three")
    figure(7, f"{rounds} kill -9 of daemon, worker and ponder-mcp together: jobs lost", count_lost(), "0")


def count_lost():
    from harness import breaches
    return sum("it goes on" in breach or "whole text" in breach for breach in breaches)


print(f"seed {SEED}", flush=True)
if PLANTED == "few_orphans":
    ten_thousand(400)
elif PLANTED == "never_death":
    poison()
elif PLANTED == "always_death":
    nobodys_fault(2)
else:
    for part, much in ((after_kills, (size(5, 100),)), (ten_thousand, (10000,)), (poison, ()),
                       (nobodys_fault, (size(4, 40),)), (worker_gone, (size(8, 50),)), (long_job, ()),
                       (all_at_once, (size(2, 20),))):
        began = time.monotonic()
        part(*much)
        print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
finish("orphans")
