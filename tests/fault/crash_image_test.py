#!/usr/bin/env python3
"""Power cuts: strace records what the daemon writes and syncs while it serves, and every disk that a
cut could leave behind (disk_model.py) is opened. No accepted job and no end that was told may be
missing, no database may be damaged, and a streamed text is behind what its reader saw by a second at
most. Three workloads: a burst of submits, streams, and pruning with checkpoints.

P3. Planted (tests/fault/planted_sqlite.cc): synchronous_off, normal_accept.
"""
import hashlib
import json
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from disk_model import Disk, Trace, strace
from harness import PLANTED, TERMINAL, Daemon, UnixConnection, breaches, check, finish, os, planted_sqlite
from profile import ahead_of_others, figure, size

IMAGES = size(70, 1100) if not PLANTED else 40  # of each workload
STARTS = size(3, 40)  # of these a real daemon opens
LAG_S = 1.0
SEED = int(os.environ.get("PONDER_SEED", time.time_ns() % 1_000_000))
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def of_database(name):
    """What must outlast a power cut; the -shm file is made anew."""
    return name.startswith("ponder.db") and not name.endswith("-shm")


class Recorded:
    """One workload served by a daemon under strace."""

    def __init__(self, work, config=""):
        self.told = {}  # job id: [(time, bytes of text its reader had by then)]
        self.accepted = set()
        home = pathlib.Path(tempfile.mkdtemp(prefix="ponder-e2e-"))
        log = tempfile.NamedTemporaryFile(prefix="ponder-trace-", dir=MEMORY)
        try:
            (home / "ponder.toml").write_text(config)
            daemon = Daemon("--engine", "stub", home=home, before=strace(log.name), environment=planted_sqlite(PLANTED))
            daemon.start()
            work(daemon, self)
            os.kill(int((home / "ponderd.lock").read_text()), signal.SIGTERM)
            daemon.process.wait(30)
            self.texts = final_texts(home)
            self.events = Trace(log.name, home, of_database).events
        finally:
            log.close()
            shutil.rmtree(home)

    def submit(self, daemon, task, **fields):
        reply = daemon.submit(task, **fields)
        if check(reply.status == 201, f"a submit is accepted, got {reply.status}"):
            self.accepted.add(reply.json["job_id"])
            return reply.json["job_id"]

    def read_stream(self, daemon, job_id):
        seen = self.told.setdefault(job_id, [])
        connection = UnixConnection(daemon.socket, 60)
        connection.request("GET", f"/v1/jobs/{job_id}/events?after=0")
        count = 0
        for line in connection.getresponse():
            if line.startswith(b'data: {"text"'):
                count += len(json.loads(line[6:])["text"].encode())
                seen.append((time.time(), count))
            if line.startswith(b"event: end"):
                return connection.close()


def promises(data):
    """(id, state) of the jobs that an answer tells of: accepted, or ended."""
    for document in re.findall(rb"(?:\r\n\r\n|event: end\ndata: )(\{.*\})", data):
        try:
            job = json.loads(document)
        except ValueError:
            continue
        if data.startswith(b"HTTP/1.1 201"):
            yield job["job_id"], "accepted"
        elif job.get("job_id") and job.get("state") in TERMINAL and "created_at" in job:
            yield job["job_id"], job["state"]


def final_texts(home):
    with sqlite3.connect(home / "ponder.db") as db:
        return texts_of(db)[0]


def texts_of(db):
    """{seq: text}, and what is wrong with the stored parts."""
    texts, wrong, expected = {}, [], {}
    for job, seq, attempt, channel, text, count, tokens, crc in db.execute(
            "select job, seq, attempt, channel, text, token_count, tokens, crc32 from chunk order by job, seq"):
        numbers = b"".join(n.to_bytes(8, "little") for n in (job, seq, attempt, channel, len(text), count))
        if zlib.crc32(numbers + text + tokens) != crc or seq != expected.get(job, 0):
            wrong.append(f"chunk {seq} of job {job}")
        expected[job] = seq + 1
        texts.setdefault(job, []).append((channel, text))
    return texts, wrong


def sha256(pieces):
    digest, last = hashlib.sha256(), None
    for channel, text in pieces:
        if channel != last:
            digest.update(b"RA"[channel:channel + 1])
        digest.update(text)
        last = channel
    return digest.digest()


def joined(pieces):
    return b"".join(text for _, text in pieces)


class Audit:
    """Counts over all images."""

    def __init__(self):
        self.images = self.damaged = self.lost = self.untrue = self.behind = 0
        self.behind_s = 0.0

    def breach(self, kind, what):
        setattr(self, kind, getattr(self, kind) + 1)
        if getattr(self, kind) <= 3:
            check(False, what)
        else:
            breaches.append(what)

    def look(self, image, where, promised, at, run):
        """`promised`: what had been told when the power went, at the time `at`."""
        self.images += 1
        try:
            db = sqlite3.connect(image / "ponder.db", isolation_level=None)
            db.row_factory = sqlite3.Row
            verdict = [row[0] for row in db.execute("pragma integrity_check")]
            verdict += [str(tuple(row)) for row in db.execute("pragma foreign_key_check")]
            tables = db.execute("select count(*) from sqlite_schema where name = 'job'").fetchone()[0]
            rows = {row["id"]: row for row in db.execute("select * from job")} if tables else {}
            texts, wrong = texts_of(db) if tables else ({}, [])
            db.close()
        except sqlite3.Error as error:
            return self.breach("damaged", f"{where}: the database is damaged: {error}")
        if verdict != ["ok"] or wrong:
            return self.breach("damaged", f"{where}: the database is damaged: {(verdict + wrong)[:3]}")
        for job_id, state in promised.items():
            row = rows.get(job_id)
            if row is None:
                self.breach("lost", f"{where}: job {job_id}, told to be {state}, is lost")
            elif state != "accepted" and row["state"] not in (state, "expired"):
                self.breach("lost", f"{where}: the end of {job_id} is lost: told {state}, is {row['state']}")
        for row in rows.values():
            pieces = texts.get(row["seq"], [])
            if row["text_sha256"] is not None and row["state"] != "expired":
                if (row["chunk_count"], row["text_sha256"]) != (len(pieces), sha256(pieces)):
                    self.breach("untrue", f"{where}: the text of {row['id']} is not the one that ended")
            whole = joined(run.texts.get(row["seq"], []))
            if row["state"] != "expired" and whole and not whole.startswith(joined(pieces)):
                self.breach("untrue", f"{where}: the text of {row['id']} is no prefix of the whole")
            self.measure_lag(where, row["id"], len(joined(pieces)), at, run)

    def measure_lag(self, where, job_id, stored, at, run):
        told = [when for when, count in run.told.get(job_id, []) if when <= at and count > stored]
        if told:
            behind = at - told[0]  # the oldest text that its reader had and the disk has not
            self.behind_s = max(self.behind_s, behind)
            if behind > LAG_S:
                self.breach("behind", f"{where}: text of {job_id} that was told {behind:.2f} s before the cut is lost")


def cuts(events, count):
    """(index, how): half of them just behind something that was told, where a loss would show."""
    choose = random.Random(SEED)
    told = [i for i, event in enumerate(events) if event[0] == "sent" and list(promises(event[2]))]
    writes = [i for i, event in enumerate(events) if event[0] != "sent"]
    ways = ["nothing", "everything", "torn", "some"]
    chosen = set()
    while len(chosen) < min(count, 3 * len(events)):
        if told and choose.random() < 0.5:
            chosen.add((choose.choice(told), choose.choice(["nothing", "some"])))
        else:
            chosen.add((choose.choice(writes), choose.choice(ways)))
    return sorted(chosen)


def cut_everywhere(name, run, audit):
    disk, promised = Disk(SEED), {}
    chosen = cuts(run.events, IMAGES)
    starts = set(chosen[::max(1, len(chosen) // STARTS)])
    with tempfile.TemporaryDirectory(prefix="ponder-image-", dir=MEMORY) as folder:
        image = pathlib.Path(folder) / "home"
        at = 0
        for index, event in enumerate(run.events):
            disk.play(event)
            if event[0] == "sent":
                for job_id, state in promises(event[2]):
                    if promised.get(job_id, "accepted") == "accepted":
                        promised[job_id] = state
            while at < len(chosen) and chosen[at][0] == index:
                how = chosen[at][1]
                where = f"{name}, cut {index} of {len(run.events)}, {how}, seed {SEED}"
                left = disk.left_behind(how)
                lay_out(image, left)
                audit.look(image, where, promised, event[1], run)
                if chosen[at] in starts and not PLANTED:
                    lay_out(image, left)
                    start_from(image, where, promised, audit)
                at += 1
    ended = sum(state != "accepted" for state in promised.values())
    check(set(promised) >= run.accepted, f"{name}: every accepted job is in the trace")
    check(ended > 0, f"{name}: ends were told")


def lay_out(image, left):
    shutil.rmtree(image, ignore_errors=True)
    image.mkdir(mode=0o700)
    for name, content in left.items():
        (image / name).write_bytes(content)


def start_from(image, where, promised, audit):
    """A real daemon on that disk."""
    daemon = Daemon("--engine", "stub", home=image)
    daemon.start()
    known = {job["job_id"]: job["state"] for job in daemon.all_jobs()}
    for job_id, state in promised.items():
        if job_id not in known:
            known[job_id] = (daemon.job(job_id) or {}).get("state")  # expired ones are not listed
        if known[job_id] is None or (state != "accepted" and known[job_id] not in (state, "expired")):
            audit.breach("lost", f"{where}: the daemon says {known[job_id]} of {job_id}, told {state}")
    daemon.kill()


def submit_burst(daemon, run):
    def some(first):
        for number in range(first, size(24, 80), 4):
            job_id = run.submit(daemon, f"burst {number} [[stub tokens=4 think=2 rate=2000]]", context="word " * (number * 40))
            if number % 5 == 0:
                daemon.wait_terminal(job_id, 30)

    threads = [threading.Thread(target=some, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for job_id in sorted(run.accepted)[-3:]:
        daemon.call("POST", f"/v1/jobs/{job_id}/cancel", {})


def streams(daemon, run):
    jobs = [run.submit(daemon, f"stream {number} [[stub tokens={size(900, 3000)} think=200 rate=300]]") for number in range(2)]
    threads = [threading.Thread(target=run.read_stream, args=(daemon, job_id)) for job_id in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def prune_and_checkpoint(daemon, run):
    for number in range(size(40, 120)):
        job_id = run.submit(daemon, f"prune {number} [[stub tokens=2 think=1 rate=2000]]", context="filler " * 15000)
        daemon.wait_terminal(job_id, 30)
        if number % 2:
            daemon.text(job_id, "answer")
        if number % 10 == 9:
            daemon.call("POST", "/v1/jobs/prune", {"unread": number % 20 == 9})


def main():
    ahead_of_others()
    audit = Audit()
    workloads = {"submit burst": (submit_burst, ""), "streams": (streams, "max_running_batch = 2\n"),
                 "prune and checkpoint": (prune_and_checkpoint, "keep_read = 3\nkeep_unread = 4\n")}
    for name, (work, config) in workloads.items():
        if PLANTED and work is not (prune_and_checkpoint if PLANTED == "synchronous_off" else submit_burst):
            continue
        run = Recorded(work, config)
        kinds = {event[0] for event in run.events}
        check({"write", "make", "sent"} <= kinds and (PLANTED or "sync" in kinds), f"{name}: what was recorded: {kinds}")
        cut_everywhere(name, run, audit)
    figure("P3", "disks after a power cut", audit.images, f">= {3 * IMAGES}")
    figure("P3", "damaged", audit.damaged, 0)
    figure("P3", "acknowledged jobs or ends lost", audit.lost, 0)
    figure("P3", "texts that are not what was generated", audit.untrue, 0)
    figure("P3", "streamed text behind, s", f"{audit.behind_s:.2f}", f"<= {LAG_S:.0f}")
    finish("crash images")


main()
