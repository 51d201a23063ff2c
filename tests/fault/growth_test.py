#!/usr/bin/env python3
"""Growth is bounded and retention exact.

First the daemon starts over many jobs that ended long ago (written into a database of an older schema
beforehand) and prunes them, while others submit: exactly the promised ones stay, and no submit waits
for a prune step. Then it works on while a foreign process always reads: a connection that holds its
snapshot and takes the next one at once. The log stays bounded, shrinks when the reader is gone, the
database does not grow, and nobody waits for the reader.

P15. Planted: prune_early (a kept result is expired beside the daemon), no_checkpoint (the log is never
written into the database).
"""
import hashlib
import json
import pathlib
import random
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, ROOT, Daemon, check, finish, planted_sqlite, wait_until
from profile import ahead_of_others, figure, size, sync_factor

JOBS = size(12_000, 100_000) if not PLANTED else 2500
WORK_S = size(9, 600) if not PLANTED else 4
SNAPSHOT_S = size(20, 60)
KEEP_READ, KEEP_UNREAD, KEEP_DAYS, TOMBSTONES = 50, 1000, 30, 10_000
INTERVAL_S = 60  # of retention
PLACES = 4
STEP_MS, WAL_MIB, SLACK = 50, 64, 0.10
LOG_AFTER_MIB, BACK_S = 16, 5
CONTEXT_BYTES, PAUSE_S = size(400_000, 4_000), size(0.05, 0.25)
RATE = size(80, 10)  # of the streams: below the budget of an answer
DAY_MS = 86_400_000


def write_ended_jobs(home):
    """A database of schema 2 with jobs that ended in the last 90 days; {id: why it stays}."""
    file = home / "ponder.db"
    file.touch(mode=0o600)
    db = sqlite3.connect(file, isolation_level=None)
    db.executescript("pragma auto_vacuum = incremental; pragma journal_mode = wal; pragma synchronous = off;")
    for name in ("0001_jobs.sql", "0002_carried_text.sql"):
        db.executescript((ROOT / "jobs/migrations" / name).read_text())
    db.execute(f"pragma application_id = {0x506e6472}")
    db.execute("pragma user_version = 2")
    triggers = db.execute("select name, sql from sqlite_schema where type = 'trigger'").fetchall()
    for name, _ in triggers:  # they stop a job from being born as ended
        db.execute(f"drop trigger {name}")
    choose, now = random.Random(15), int(time.time() * 1000)
    jobs, requests, changes, chunks, read, unread, pinned = [], [], [], [], [], [], []
    for seq in range(1, JOBS + 1):
        job_id = f"{seq:026d}"
        ended = now - 90 * DAY_MS * (JOBS - seq) // JOBS - 60_000  # later ones ended later
        is_pinned, is_read = choose.random() < 0.01, choose.random() < 0.5
        text = f"what job {seq} came to. ".encode() * 8
        sha = hashlib.sha256(b"A" + text).digest()
        jobs.append((seq, job_id, "batch", "completed", hashlib.sha256(job_id.encode()).digest(), "medium", is_pinned,
                     ended + 1 if is_read else None, ended - 2000, ended - 1000, ended, len(text), 1, len(text), sha))
        requests.append((seq, json.dumps({"task": f"job {seq}", "context": "x" * 200})))
        changes += [(seq, n, n + (n == 3) * len(text), (n == 3) * len(text), state, 0 if n == 1 else 1, ended)
                    for n, state in enumerate(("queued", "running", "completed"), 1)]
        numbers = b"".join(n.to_bytes(8, "little") for n in (seq, 0, 1, 1, len(text), 0))
        chunks.append((seq, 0, 1, 1, text, 0, b"", zlib.crc32(numbers + text)))
        (pinned if is_pinned else read if is_read else unread).append((job_id, ended))
    db.execute("begin")
    db.executemany("insert into job (seq, id, lane, state, body_sha256, effort_requested, pinned, read_ms, created_ms, "
                   "started_ms, ended_ms, answer_chars, chunk_count, text_bytes, text_sha256) "
                   "values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", jobs)
    db.executemany("insert into request (job, body) values (?,?)", requests)
    db.executemany("insert into state_change (job, seq, position, text_bytes, state, attempt, at_ms) "
                   "values (?,?,?,?,?,?,?)", changes)
    db.executemany("insert into chunk (job, seq, attempt, channel, text, token_count, tokens, crc32) "
                   "values (?,?,?,?,?,?,?,?)", chunks)
    for _, sql in triggers:
        db.execute(sql)
    db.execute("commit")
    db.close()
    oldest = now - KEEP_DAYS * DAY_MS
    kept = {job_id: "pinned" for job_id, _ in pinned}
    kept |= {job_id: "read" for job_id, _ in read[-KEEP_READ:]}
    kept |= {job_id: "unread" for job_id, ended in unread[-KEEP_UNREAD:] if ended > oldest}
    return kept


def rows(home):
    with sqlite3.connect(f"file:{home}/ponder.db?mode=ro", uri=True) as db:
        return dict(db.execute("select id, state from job"))


def count(home, state):
    """Of those that had ended before; cheap, for it must not hold up the clients in this process."""
    with sqlite3.connect(f"file:{home}/ponder.db?mode=ro", uri=True) as db:
        return db.execute("select count(*) from job where state = ? and seq <= ?", (state, JOBS)).fetchone()[0]


class Submitter(threading.Thread):
    """Submits all the time and measures how long each takes; reads some results."""

    def __init__(self, daemon, pause_s, run_jobs, context="context " * 200, may_refuse=False):
        super().__init__()
        self.daemon_program, self.pause_s, self.run_jobs = daemon, pause_s, run_jobs
        self.context, self.may_refuse = context, may_refuse
        self.took_ms, self.ids, self.refused, self.stop = [], [], 0, threading.Event()

    def run(self):
        number = 0
        while not self.stop.wait(self.pause_s):
            number += 1
            began = time.monotonic()
            reply = self.daemon_program.submit(f"{self.pause_s} {number} [[stub tokens=20 think=5 rate=4000]]",
                                               context=self.context, force_new=True)
            self.took_ms.append((time.monotonic() - began) * 1000)
            if self.may_refuse and reply.status == 503 and reply.json["error"]["code"] == "storage":
                self.refused += 1
                continue
            if not check(reply.status == 201, f"a submit is accepted: {reply.status} {reply.json.get('error')}"):
                return
            self.ids.append(reply.json["job_id"])
            if self.run_jobs and number % 4 == 0:
                job = self.daemon_program.wait_terminal(self.ids[-2], 30)
                if job["state"] == "completed":
                    self.daemon_program.text(job["job_id"], "answer")

    def done(self):
        self.stop.set()
        self.join()
        return self.took_ms


def prune(daemon, kept):
    """From the start until retention has nothing left to do."""
    ended_before = set(rows(daemon.home))
    # Nothing else may end meanwhile: it would count among what is kept.
    factor = sync_factor(daemon.home)
    blockers = [daemon.submit(f"holds place {n} [[stub prefill_s=3600]]").json["job_id"] for n in range(PLACES)]
    began = time.monotonic()
    submitter = Submitter(daemon, 0.02, run_jobs=False)
    submitter.start()
    if PLANTED == "prune_early":
        with sqlite3.connect(daemon.home / "ponder.db", timeout=5) as db:
            db.execute("update job set state = 'expired', summary = 'planted' where id = ?", (max(kept),))
    expected, bound = min(TOMBSTONES, JOBS - len(kept)), 2 * INTERVAL_S
    while time.monotonic() - began < bound:
        time.sleep(0.2)
        if count(daemon.home, "completed") <= len(kept) and count(daemon.home, "expired") <= expected + 20:
            break
    took = time.monotonic() - began
    # A little longer: nothing more may go.
    time.sleep(0.5)
    took_ms = submitter.done()
    state = rows(daemon.home)
    step_ms = STEP_MS * max(factor, sync_factor(daemon.home))
    early = [job_id for job_id in kept if state.get(job_id) != "completed"]
    late = [job_id for job_id in ended_before if state.get(job_id) == "completed" and job_id not in kept]
    check(not early, f"{len(early)} of {len(kept)} results were pruned early, such as a {kept[early[0]] if early else ''} one")
    check(not late, f"{len(late)} results are still there after {took:.0f} s")
    expired = [job_id for job_id in ended_before if state.get(job_id) == "expired"]
    check(len(expired) == expected, f"{len(expired)} tombstones stand, not {expected}")
    gone = sorted(ended_before - set(kept))
    check(sorted(expired) == gone[-expected:], "the tombstones are the newest of those that went")
    # T14, Q00/ouroboros#1433: an evicted id answers expired with its summary line.
    answer = daemon.job(expired[-1])
    check(answer["state"] == "expired" and "was completed" in answer["note"], f"an evicted id says so: {answer['state']} {answer['note']}")
    states = [state.get(job_id) for job_id in submitter.ids + blockers]
    check(set(states) <= {"queued", "running"}, f"live jobs are never pruned: {set(states)}")
    check(max(took_ms) <= step_ms, f"a submit took {max(took_ms):.0f} ms while results were pruned")
    figure("P15", "ended jobs before the start", JOBS, f">= {JOBS}")
    figure("P15", "results pruned early", len(early), 0)
    figure("P15", "results not pruned after two intervals", len(late), 0)
    figure("P15", "pruned after, s", f"{took:.1f}", f"<= {bound}")
    figure("P15", "submit while pruning, p100 of " + str(len(took_ms)) + ", ms", f"{max(took_ms):.0f}", f"<= {step_ms:.0f}")
    figure("P15", "submit while pruning, median, ms", f"{statistics.median(took_ms):.1f}", "-")
    for job_id in submitter.ids + blockers:
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})


READER = """
import sqlite3, sys, time
file, hold_s = sys.argv[1], float(sys.argv[2])
db = sqlite3.connect(f"file:{file}?mode=ro", uri=True, isolation_level=None)
while True:
    db.execute("begin")
    db.execute("select count(*) from job where state = 'queued'").fetchone()
    print("holds", flush=True)
    time.sleep(hold_s)
    db.execute("commit")
"""


def work_under_a_reader(daemon):
    """# 7a: DeusData/codebase-memory-mcp#1083, openclaw/openclaw#112950: a log of 115 GB.

    No checkpoint gets past such a reader, so what bounds the log is that new work is refused."""
    db, wal = daemon.home / "ponder.db", daemon.home / "ponder.db-wal"
    reader = subprocess.Popen([sys.executable, "-c", READER, str(db), str(SNAPSHOT_S)], stdout=subprocess.PIPE)
    reader.stdout.readline()
    submitter = Submitter(daemon, PAUSE_S, run_jobs=True, context="x" * CONTEXT_BYTES, may_refuse=True)
    submitter.start()
    streams = [daemon.submit(f"stream {n} [[stub tokens={(WORK_S + 60) * RATE} think=50 rate={RATE}]]", pin=True).json["job_id"]
               for n in range(2)]
    began, steady, most_db, most_wal = time.monotonic(), 0, 0, 0
    while (at := time.monotonic() - began) < WORK_S:
        most_wal = max(most_wal, wal.stat().st_size)
        if at < WORK_S / 3:
            steady = max(steady, db.stat().st_size)
        else:
            most_db = max(most_db, db.stat().st_size)
        time.sleep(0.05)
    took_ms = submitter.done()
    reader.kill()
    reader.wait()
    running = [daemon.job(job_id)["state"] for job_id in streams]
    check(set(running) == {"running"}, f"the streams went on: {running}")
    # It shrinks and takes work once the reader is gone.
    after = Submitter(daemon, 0.1, run_jobs=True, may_refuse=True)
    after.start()
    wait_until(lambda: after.ids, BACK_S, "jobs are accepted when the reader is gone")
    wait_until(lambda: wal.stat().st_size <= LOG_AFTER_MIB << 20, BACK_S, "the log shrinks when the reader is gone")
    after.done()
    ended = [daemon.wait_terminal(job_id, 60)["state"] for job_id in (submitter.ids + after.ids)[-100:]]
    check(set(ended) <= {"completed", "expired"}, f"what was accepted completes: {set(ended)}")
    growth = most_db / steady - 1
    check(most_wal <= WAL_MIB << 20, f"the log grew to {most_wal >> 20} MiB")
    check(growth <= SLACK, f"the database grew by {growth:.0%} after it had its size")
    check(max(took_ms) <= 5 * STEP_MS, f"a submit took {max(took_ms):.0f} ms beside a foreign reader")
    figure("P15", f"log while a reader is always there, {WORK_S} s, MiB", f"{most_wal / 2**20:.1f}", f"<= {WAL_MIB}")
    figure("P15", "submits refused meanwhile, of " + str(len(took_ms)), submitter.refused, "-")
    figure("P15", "log after it has gone, MiB", f"{wal.stat().st_size / 2**20:.1f}", f"<= {LOG_AFTER_MIB}")
    figure("P15", "database beyond its steady size", f"{max(0, growth):.1%}", f"<= {SLACK:.0%}")
    figure("P15", f"submit beside the reader, p100 of {len(took_ms)}, ms", f"{max(took_ms):.0f}", f"<= {5 * STEP_MS}")


def main():
    ahead_of_others()
    with Daemon("--engine", "stub", environment=planted_sqlite(PLANTED)) as daemon:
        kept = write_ended_jobs(daemon.home)
        config = f"max_running_batch = {PLACES}\nmax_queued = 20000\nctx = 200000\n"
        (daemon.home / "ponder.toml").write_text(config)
        daemon.start()
        if PLANTED != "no_checkpoint":
            prune(daemon, kept)
        if PLANTED != "prune_early":
            daemon.stop()
            (daemon.home / "ponder.toml").write_text(config + "keep_read = 5\nkeep_unread = 20\n")
            daemon.start()
            pinned = sum(why == "pinned" for why in kept.values())
            wait_until(lambda: count(daemon.home, "completed") <= pinned + 25, 60, "the new settings hold")
            work_under_a_reader(daemon)
    finish("growth")


main()
