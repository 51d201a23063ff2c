#!/usr/bin/env python3
"""Damage: bits flipped in the database, its log, its rows and texts; pages zeroed; files cut, emptied
and deleted. A daemon that is started on them never crashes, is up within ten seconds with a queue that
works, serves no text and no row that is not what was stored, and tells of everything that changed: with
an error that names the job, as failed(storage), or, where a job is not known any more, in /health.

P14. Planted: hide_damage (a proxy that answers a damaged text as if it were whole), no_seal
(planted_sqlite.cc: checksums of rows are not looked at).
"""
import concurrent.futures
import json
import pathlib
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness
from harness import PLANTED, Daemon, PlantingProxy, check, cli, finish, os, planted_sqlite, wait_until
from profile import figure, size

ROUNDS = size(60, 500) if not PLANTED else 16
AT_ONCE = 2
START_S = 10
SEED = int(os.environ.get("PONDER_SEED", time.time_ns() % 1_000_000))
FILES = ("ponder.db", "ponder.db-wal", "ponder.db-shm")
ROW = ("state", "reason", "label", "workspace", "pinned", "created_at", "ended_at", "effort", "tokens", "total_chars")


class Hider(PlantingProxy):
    """hide_damage: where the daemon says that a text is damaged, some text is served."""

    def exchange(self, handler):
        line = handler.rfile.readline().decode("latin1").split()
        headers = harness.http.client.parse_headers(handler.rfile)
        body = handler.rfile.read(int(headers.get("Content-Length", 0)))
        connection = harness.UnixConnection(self.upstream, 70)
        connection.request(line[0], line[1], body or None, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        status, data = answer.status, answer.read()
        if "/result" in line[1] and status == 503:
            status, data = 200, json.dumps({"text": "what the disk gave", "state": "completed"}).encode()
        handler.wfile.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
                            + data)


class Original:
    """What was stored before the damage: the files of a daemon that stopped, and of one that was killed."""

    def __init__(self):
        with Daemon("--engine", "stub") as daemon:
            daemon.start()
            self.jobs = {}
            ids = [daemon.submit(f"text {n} [[stub tokens={60 + 130 * (n % 4)} think=20 rate=100000]]",
                                 label=f"label-{n}", workspace=f"/workspace/{n % 3}", pin=n % 5 == 0).json["job_id"]
                   for n in range(26)]
            for job_id in ids:
                check(daemon.wait_terminal(job_id)["state"] == "completed", "the jobs are done")
            daemon.call("POST", f"/v1/jobs/{ids[1]}/cancel")
            daemon.stop()
            self.stopped = self.files(daemon)
            daemon.start()
            more = [daemon.submit(f"later {n} [[stub tokens=90 think=20 rate=100000]]", label=f"late-{n}").json["job_id"]
                    for n in range(8)]
            for job_id in more:
                daemon.wait_terminal(job_id)
            live = [daemon.submit(f"live {n} [[stub tokens=400 think=20 rate=2000]]").json["job_id"] for n in range(3)]
            wait_until(lambda: daemon.job(live[0])["phase"] is not None, 10, "a job runs")
            time.sleep(0.3)
            for job_id in ids + more:
                job = daemon.job(job_id)
                self.jobs[job_id] = ({key: job[key] for key in ROW}, daemon.text(job_id, "answer"),
                                     daemon.text(job_id, "reasoning"))
            self.of_stopped, self.live = set(ids), set(live)
            daemon.kill()
            self.killed = self.files(daemon)
            # What the live ones come to, undisturbed.
            daemon.start()
            self.whole = {job_id: (daemon.wait_terminal(job_id, 60)["state"], daemon.text(job_id, "answer"))[1]
                          for job_id in live}

    @staticmethod
    def files(daemon):
        return {name: (daemon.home / name).read_bytes() for name in FILES if (daemon.home / name).exists()}


class Counts:
    crashes = wrong = changed = unreported = rounds = 0
    start_s = 0.0
    lock = threading.Lock()


def flip(data, choose, at=None):
    data = bytearray(data)
    at = choose.randrange(len(data)) if at is None else at
    data[at] ^= 1 << choose.randrange(8)
    return bytes(data)


def live_part(log):
    """How much of a log is of its present round; behind it lie frames of an earlier one."""
    at = 32
    while log[at + 8:at + 16] == log[16:24] and at + 4120 <= len(log):
        at += 4120
    return at


def in_sql(folder, statement):
    """Changes rows behind the back of every rule and checksum."""
    with sqlite3.connect(folder / "ponder.db") as db:
        for name, in db.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
            db.execute(f"drop trigger {name}")
        changed = db.execute(*statement).rowcount
    db.close()
    check(changed > 0, f"the damage is done: {statement[0]}")


def damage(original, home, kind, choose):
    """Leaves damaged files in `home`; (the jobs they held, whether their end may be missing unseen)."""
    killed = kind.startswith("log") or choose.random() < 0.3
    files = dict(original.killed if killed else original.stopped)
    held = set(original.jobs) if killed else original.of_stopped
    lost_end = False
    if kind == "flip":
        files["ponder.db"] = flip(files["ponder.db"], choose)
    elif kind == "header":
        files["ponder.db"] = flip(files["ponder.db"], choose, choose.randrange(100))
    elif kind == "schema":
        files["ponder.db"] = flip(files["ponder.db"], choose, files["ponder.db"].index(b"CREATE ") + choose.randrange(900))
    elif kind == "page":
        at = choose.randrange(len(files["ponder.db"]) // 4096) * 4096
        filler = choose.choice([bytes(4096), choose.randbytes(4096)])
        files["ponder.db"] = files["ponder.db"][:at] + filler + files["ponder.db"][at + 4096:]
    elif kind == "cut":
        files["ponder.db"] = files["ponder.db"][:choose.randrange(len(files["ponder.db"]))]
    elif kind == "empty":
        files["ponder.db"] = b""
    elif kind == "log flip":
        files["ponder.db-wal"] = flip(files["ponder.db-wal"], choose, choose.randrange(live_part(files["ponder.db-wal"])))
    elif kind == "log cut":
        files["ponder.db-wal"] = files["ponder.db-wal"][:choose.randrange(live_part(files["ponder.db-wal"]))]
        # Without the index of the log, as after a restart of the machine, it may end there as well.
        lost_end = choose.random() < 0.5
        if lost_end:
            del files["ponder.db-shm"]
    elif kind == "log gone":
        del files["ponder.db-wal"]
    elif kind == "log without database":
        del files["ponder.db"]
    elif kind == "index flip":
        name = "ponder.db-shm" if "ponder.db-shm" in files else "ponder.db"
        files[name] = flip(files[name], choose)
    for name, data in files.items():
        (home / name).write_bytes(data)
        (home / name).chmod(0o600)
    one = "(select seq from job where state = 'completed' order by id limit 1 offset ?)"
    which = choose.randrange(20)
    if kind == "text":
        in_sql(home, (f"update chunk set text = cast(replace(text, 'a', 'A') as blob) where job = {one}", (which,)))
    elif kind == "tokens":
        in_sql(home, (f"update chunk set tokens = zeroblob(length(tokens)) where job = {one} and length(tokens) > 0", (which,)))
    elif kind == "chunk gone":
        in_sql(home, (f"delete from chunk where seq > 0 and job = {one}", (which,)))
    elif kind == "label":
        in_sql(home, (f"update job set label = 'another' where seq = {one}", (which,)))
    elif kind == "state":
        in_sql(home, (f"update job set state = 'queued', ended_ms = null, chunk_count = null, text_bytes = null, "
                      f"text_sha256 = null where seq = {one}", (which,)))
    elif kind == "row gone":
        in_sql(home, (f"update job set id = '00000000000000000000000000', label = 'x' where seq = {one}", (which,)))
    elif kind == "request":
        in_sql(home, (f"update request set body = replace(body, 'text', 'TEXT') where job = {one}", (which,)))
    return held, lost_end


KINDS = ["flip"] * 6 + ["header", "schema", "page", "page", "cut", "empty", "log flip", "log flip", "log flip", "log flip",
                        "log cut", "log gone", "log without database", "index flip", "text", "tokens", "chunk gone",
                        "label", "state", "row gone", "request"]
if PLANTED:
    KINDS = ["text", "tokens", "chunk gone", "label"]


def one_round(original, number):
    choose = random.Random(SEED * 1000 + number)
    kind = KINDS[number % len(KINDS)]
    where = f"round {number} of seed {SEED} ({kind})"
    home = pathlib.Path(tempfile.mkdtemp(prefix="ponder-e2e-"))
    try:
        held, lost_end = damage(original, home, kind, choose)
        environment = planted_sqlite(PLANTED) if PLANTED == "no_seal" else {}
        daemon = Daemon("--engine", "stub", home=home, environment=environment)
        began = time.monotonic()
        daemon.start(wait_ready=False)
        while daemon.process.poll() is None and time.monotonic() - began < START_S + 5:
            if daemon.try_health().get("state") in ("ready", "busy"):
                break
            time.sleep(0.02)
        took = time.monotonic() - began
        log = daemon.log.read_text(errors="replace")
        if not check(daemon.process.poll() is None and took <= START_S,
                     f"{where}: the daemon is up within {START_S} s, it took {took:.1f}: {log[-600:]}"):
            Counts.crashes += daemon.process.poll() is not None
            return daemon.stop()
        look(original, daemon, held, lost_end, where)
        check(daemon.process.poll() is None, f"{where}: the daemon still runs: {daemon.log.read_text()[-600:]}")
        with Counts.lock:
            Counts.start_s = max(Counts.start_s, took)
            Counts.crashes += daemon.process.poll() is not None
            Counts.rounds += 1
        daemon.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def look(original, daemon, held, lost_end, where):
    via = Hider(daemon.socket, PLANTED).path if PLANTED == "hide_damage" else daemon.socket
    call = lambda method, target: daemon.call(method, target, via=via)  # noqa: E731
    told = bool(daemon.try_health().get("reason"))
    wrong, changed, unreported = [], 0, []
    for job_id in sorted(held):
        row, answer, reasoning = original.jobs[job_id]
        reply = call("GET", f"/v1/jobs/{job_id}")
        told = told or bool(daemon.try_health().get("reason"))  # found in the middle of the call
        if reply.status == 404:
            changed += 1
            if not told and not lost_end:
                unreported.append(f"{job_id} is not known")
            continue
        if reply.status != 200:
            changed += 1
            if (reply.json or {}).get("error", {}).get("code") != "storage":
                unreported.append(f"{job_id}: {reply.status} {reply.body[:200]}")
            continue
        job = reply.json
        if job["state"] == "failed" and job["reason"] == "storage":
            changed += 1
            if job["error"]["message"] != "lost: storage damage" or not told:
                unreported.append(f"{job_id}: {job['error']} {told}")
            continue
        if job["state"] != "completed":  # its end was lost with the end of the log; it is made again
            changed += 1
            if not told and not lost_end:
                unreported.append(f"{job_id} is {job['state']}")
            job = daemon.wait_terminal(job_id, 60)
            if job["state"] != "completed":
                unreported.append(f"{job_id} came to {job['state']} {job['reason']} {job['error']}")
                continue
        elif not told and {key: job[key] for key in ROW} != row:
            wrong.append(f"the row of {job_id}: {[(key, job[key], row[key]) for key in ROW if job[key] != row[key]]}")
        if job["answer"] is not None and job["answer"] != answer:
            wrong.append(f"the answer of {job_id} in its envelope")
        for part, text in (("answer", answer), ("reasoning", reasoning)):
            reply = call("GET", f"/v1/jobs/{job_id}/result?part={part}")
            if reply.status == 200 and reply.json["text"] != text:
                wrong.append(f"the {part} of {job_id}")
            elif reply.status == 503:
                changed += part == "answer"
                error = reply.json["error"]
                if error["code"] != "storage" or error["job_id"] != job_id or "damaged" not in error["message"]:
                    unreported.append(f"{job_id}: {error}")
            elif reply.status != 200:
                unreported.append(f"{job_id}: {reply.status}")
    if held == set(original.jobs):
        for job_id in original.live:
            job = daemon.wait_terminal(job_id, 60) if call("GET", f"/v1/jobs/{job_id}").status == 200 else None
            if job and job["state"] == "completed":
                reply = call("GET", f"/v1/jobs/{job_id}/result")
                if reply.status == 200 and reply.json["text"] != original.whole[job_id]:
                    wrong.append(f"the answer of {job_id}, which was running")
                elif reply.status != 200 and reply.json["error"].get("job_id") != job_id:  # it ended before the damage
                    unreported.append(f"{job_id}, which was running and is completed: {reply.status} {reply.body}")
            elif not (told or lost_end or job and job["state"] == "failed"):
                unreported.append(f"{job_id}, which was running, is {job and job['state']}")
    check(not wrong, f"{where}: served as if it were whole: {wrong[:3]}")
    check(not unreported, f"{where}: changed without a word: {unreported[:3]}")
    reply = daemon.call("GET", "/v1/jobs?limit=1000")
    check(reply.status == 200, f"{where}: the jobs are listed, got {reply.status} {reply.body[:200]}")
    new = daemon.submit("a new job [[stub tokens=3 rate=100000]]")
    check(new.status == 201 and daemon.wait_terminal(new.json["job_id"], 20)["state"] == "completed",
          f"{where}: the queue works, got {new.status} {new.body[:200]}")
    if told:
        first = (daemon.try_health()["reason"] or "")
        check(len(first) > 40 and "{" not in first, f"{where}: /health says it in a sentence: {first!r}")
    with Counts.lock:
        Counts.wrong += len(wrong)
        Counts.unreported += len(unreported)
        Counts.changed += changed


def found_while_running(original):
    """The same without a restart: a row is changed under a daemon that has it open."""
    with Daemon("--engine", "stub") as daemon:
        for name, data in original.stopped.items():
            (daemon.home / name).write_bytes(data)
        daemon.start()
        pid = daemon.process.pid
        running = daemon.submit("goes on [[stub tokens=600 think=20 rate=300]]").json["job_id"]
        waits = daemon.submit("waits [[stub tokens=20 rate=100000]]").json["job_id"]
        wait_until(lambda: daemon.job(running)["phase"] is not None, 10, "the job runs")
        victim = sorted(original.of_stopped)[3]
        with sqlite3.connect(daemon.home / "ponder.db", timeout=10) as db:
            for name, in db.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
                db.execute(f"drop trigger {name}")
            db.execute("update job set label = 'another' where id = ?", (victim,))
        db.close()
        job = daemon.job(victim)
        check(job["state"] == "failed" and job["error"]["message"] == "lost: storage damage",
              f"a row that is changed while the daemon runs is lost and says so: {job}")
        check("was damaged" in (daemon.try_health()["reason"] or ""), "/health tells of it")
        check(daemon.process.poll() is None and daemon.process.pid == pid, "the daemon goes on")
        for job_id in (running, waits):
            check(daemon.wait_terminal(job_id, 30)["state"] == "completed", "what ran and what waited is completed")
        for job_id in original.of_stopped - {victim}:
            check(daemon.text(job_id, "answer") == original.jobs[job_id][1], "the others are whole")


def doctor_offline(original):
    """ponder doctor --offline sees what the daemon would, and changes nothing."""
    for what, code in (("whole", 0), ("text", 74), ("label", 74), ("page", 74), ("log flip", 74)):
        home = pathlib.Path(tempfile.mkdtemp(prefix="ponder-e2e-"))
        if what == "whole":
            for name, data in original.stopped.items():
                (home / name).write_bytes(data)
                (home / name).chmod(0o600)
        else:
            choose = random.Random(7)
            choose.random = lambda: 0.9  # not the killed one, but for the log
            damage(original, home, what, choose)
        before = {name: (home / name).read_bytes() for name in FILES[:2] if (home / name).exists()}
        said = cli(home, "doctor", "--offline", "--json")
        report = json.loads(said.stdout)
        check(said.returncode == code, f"doctor --offline of {what}: exit {said.returncode}, not {code}: {said.stdout[:500]}")
        check(report["ok"] == (code == 0) and report["schema_version"] == 1 and report["checks"],
              f"doctor --offline of {what}: {said.stdout[:300]}")
        if what == "whole":
            check(report["jobs"] == {"completed": len(original.of_stopped)} and report["texts_checked"] == len(original.of_stopped),
                  f"doctor --offline counts: {report['jobs']} {report['texts_checked']}")
        if what in ("text", "label"):
            check(len(report["damaged"]) == 1, f"doctor --offline names the job: {report['damaged']}")
        after = {name: (home / name).read_bytes() for name in before}
        check(after == before and not [p for p in home.iterdir() if "damaged" in p.name],
              f"doctor --offline of {what} changes nothing")
        words = cli(home, "doctor", "--offline")
        check(words.returncode == code and ("fail" in words.stdout) == (code != 0), f"doctor --offline in words: {words.stdout}")
        shutil.rmtree(home)
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        said = cli(daemon.home, "doctor", "--offline")
        check(said.returncode == 75 and "stop" in said.stderr, f"while the daemon runs: {said.returncode} {said.stderr}")


original = Original()
if PLANTED != "no_seal":
    check(len(original.jobs) == 34, "the jobs to be damaged are there")
with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
    for done in [pool.submit(one_round, original, number) for number in range(ROUNDS)]:
        done.result()
if not PLANTED:
    found_while_running(original)
    doctor_offline(original)
figure(14, f"{Counts.rounds} flips, cuts and lost files: crashes", Counts.crashes, "0")
figure(14, f"texts and rows served with a wrong content ({Counts.changed} were damaged)", Counts.wrong, "0")
figure(14, "changed jobs of which nobody was told", Counts.unreported, "0")
figure(14, "start on damaged files, at most", f"{Counts.start_s:.2f} s", f"{START_S} s")
finish("damage")
