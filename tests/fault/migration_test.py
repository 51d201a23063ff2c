#!/usr/bin/env python3
"""Databases of every released schema come to the newest one, also when the daemon is killed at any write,
sync, rename or removal on the way there: the next start has every job, and the copy that was made first
is whole. The same for the rebuilding of a damaged database. A disk without room for the copy, and a
database of a newer schema, are refused in a sentence, with nothing changed.

P14 (reliability of migrations). Planted: skip_rows (a job is gone after the start, as after a migration
that forgets one).
"""
import concurrent.futures
import pathlib
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, PLANTED, ROOT, Daemon, check, finish, os, time
from profile import figure, size

FIXTURES = ROOT / "tests/fault/fixtures"
RELEASED = sorted(int(re.search(r"\d+", file.name)[0]) for file in FIXTURES.glob("schema_*.sql"))
NEWEST = len(list((ROOT / "jobs/migrations").glob("*.sql")))
CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "rename", "unlink")
KILLS = size(24, 100_000)  # of each kind; all where there are fewer
AT_ONCE = 2
SEED = int(os.environ.get("PONDER_SEED", time.time_ns() % 1_000_000))
CONFIG = "keep_read = 100000\nkeep_unread = 100000\nkeep_unread_days = 36500\n"  # the fixtures get old


class Counts:
    kills = lost = untrue = 0
    lock = threading.Lock()


def jobs_of(file):
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        return {row[0]: row[1:] for row in db.execute(
            "select id, state, reason, label, workspace, answer_chars, text_sha256 from job")}


def content(file):
    """All that a database holds, whether it stands in the file or still in the log."""
    db = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    all_of_it = list(db.iterdump()), db.execute("pragma user_version").fetchone()
    db.close()
    return all_of_it


def new_home():
    home = pathlib.Path(tempfile.mkdtemp(prefix="ponder-e2e-"))
    (home / "ponder.toml").write_text(CONFIG)
    return home


def schema(version):
    """A home with a database of that version, and its jobs."""
    home = new_home()
    with sqlite3.connect(home / "ponder.db") as db:
        db.executescript((FIXTURES / f"schema_{version}.sql").read_text())
        db.execute("pragma journal_mode = wal")
    db.close()
    (home / "ponder.db").chmod(0o600)
    return home, jobs_of(home / "ponder.db")


def damaged():
    """A home with a database of the newest schema, one page of which is zeros, and the jobs it had."""
    home, jobs = schema(RELEASED[-1])
    with Daemon("--engine", "stub", home=home) as daemon:
        daemon.start()
        for job_id, row in jobs.items():
            if row[0] in ("queued", "running"):
                daemon.call("POST", f"/v1/jobs/{job_id}/cancel")
        daemon.stop()
    jobs = jobs_of(home / "ponder.db")
    for path in home.glob("ponder.db.before-*"):
        path.unlink()
    with sqlite3.connect(home / "ponder.db") as db:
        root = db.execute("select rootpage from sqlite_schema where name = 'job_workspace'").fetchone()[0]
    db.close()
    data = bytearray((home / "ponder.db").read_bytes())
    data[(root - 1) * 4096:root * 4096] = bytes(4096)  # an index: every row can still be read
    (home / "ponder.db").write_bytes(data)
    return home, jobs


def traced(home, *options):
    return subprocess.Popen(["strace", "-f", "-qq", "-b", "execve", "--seccomp-bpf", *options, BIN / "ponderd", "--home",
                             home, "--port", "0", "--engine", "stub"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def serves(home, process, seconds=30):
    probe = Daemon(home=home)
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if probe.try_health().get("state") in ("ready", "busy", "loading"):
            return True
        time.sleep(0.01)
    return False


def end_of(home, process):
    """Ends the daemon under strace, which ends with it."""
    os.kill(int((home / "ponderd.lock").read_text()), 9)
    process.wait(20)


def count_calls(template):
    """How often each call is made until the daemon serves."""
    home = clone(template)
    with tempfile.NamedTemporaryFile("r", prefix="ponder-trace-") as log:
        process = traced(home, "-o", log.name, "-e", "trace=" + ",".join(CALLS))
        check(serves(home, process), "a traced daemon serves")
        end_of(home, process)
        made = [m[1] for m in re.finditer(r"^\d+ +(\w+)\(", log.read(), re.M)]
    shutil.rmtree(home)
    return {call: made.count(call) for call in CALLS}


def clone(template):
    home = new_home()
    for path in template.iterdir():
        if path.name.startswith("ponder.db"):
            shutil.copy2(path, home / path.name)
    return home


def one_kill(template, jobs, what, call, which, old):
    where = f"{what} killed at {call} {which}"
    home = clone(template)
    try:
        process = traced(home, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={which}")
        ended = not serves(home, process)
        if not ended:  # it serves before this call
            end_of(home, process)
        process.wait(20)
        for copy in [path for path in home.iterdir() if re.fullmatch(r"ponder\.db\.before-\d+", path.name)]:
            with sqlite3.connect(f"file:{copy}?mode=ro", uri=True) as db:
                check(db.execute("pragma integrity_check").fetchone()[0] == "ok" and jobs_of(copy) == jobs,
                      f"{where}: the copy {copy.name} is whole")
        with Daemon("--engine", "stub", home=home) as daemon:
            daemon.start()
            look(daemon, jobs, where, old)
            daemon.kill()
        left = [path.name for path in home.iterdir()
                if re.search(r"\.(part|fresh|salvage|rebuilt|new)", path.name.removeprefix("ponder.db"))]
        check(not left, f"{where}: nothing half-made is left: {left}")
        with Counts.lock:
            Counts.kills += ended
    finally:
        shutil.rmtree(home, ignore_errors=True)


def look(daemon, jobs, where, old):
    if PLANTED == "skip_rows":
        with sqlite3.connect(daemon.home / "ponder.db", timeout=10) as db:
            for name, in db.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
                db.execute(f"drop trigger {name}")
            db.execute("delete from job where seq = 2")
        db.close()
    lost, untrue = [], []
    for job_id, (state, reason, label, workspace, chars, _) in jobs.items():
        reply = daemon.call("GET", f"/v1/jobs/{job_id}")
        if reply.status != 200:
            lost.append(job_id)
            continue
        job = reply.json
        if state in ("queued", "running"):
            if job["state"] not in ("running", "queued", "completed", "interrupted"):
                untrue.append(f"{job_id} was {state} and is {job['state']}")
        elif (job["state"], job["reason"] or "", job["label"] or "", job["workspace"] or "") != (state, reason, label, workspace):
            untrue.append(f"{job_id}: {job['state']} {job['reason']} {job['label']} instead of {state} {reason} {label}")
        elif state == "completed" and len(daemon.text(job_id, "answer")) != chars:
            untrue.append(f"the text of {job_id}")
    check(not lost, f"{where}: {len(lost)} jobs are lost: {lost[:3]}")
    check(not untrue, f"{where}: {untrue[:3]}")
    if old and not PLANTED:
        with sqlite3.connect(f"file:{daemon.home}/ponder.db?mode=ro", uri=True) as db:
            version = db.execute("pragma user_version").fetchone()[0]
        check(version == NEWEST, f"{where}: version {version} is the newest")
        check(not list(daemon.home.glob("*.damaged-*")), f"{where}: a kill is no damage")
    with Counts.lock:
        Counts.lost += len(lost)
        Counts.untrue += len(untrue)


def kills():
    plans = []
    templates = [(f"schema {v}", *schema(v), True) for v in RELEASED] + [("a rebuild", *damaged(), False)]
    for what, home, jobs, old in templates:
        counted = count_calls(home)
        check(counted["pwrite64"] > 10 and counted["rename"] >= 1, f"{what}: the calls are counted: {counted}")
        every = [(call, which) for call in CALLS for which in range(1, counted[call] + 1)]
        for call, which in every if len(every) <= KILLS else random.Random(SEED).sample(every, KILLS):
            plans.append((home, jobs, what, call, which, old))
    if PLANTED:
        plans = plans[:4]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(one_kill, *plan) for plan in plans]:
            done.result()
    for _, home, _, _ in templates:
        shutil.rmtree(home)
    check(Counts.kills >= len(plans) * 2 // 3, f"{Counts.kills} of {len(plans)} kills came in time")


def start_refused(home, before=()):
    return subprocess.run([*before, BIN / "ponderd", "--home", home, "--port", "0", "--engine", "stub"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)


def refusals():
    """A newer schema, and no room for the copy: one sentence, exit 1, nothing changed."""
    home, _ = schema(RELEASED[-1])
    with sqlite3.connect(home / "ponder.db") as db:
        db.execute(f"pragma user_version = {NEWEST + 5}")
    db.close()
    before = content(home / "ponder.db")
    said = start_refused(home)
    check(said.returncode == 1 and f"version {NEWEST + 5}" in said.stderr and f"up to {NEWEST}" in said.stderr,
          f"a newer schema is refused with its version: {said.returncode} {said.stderr}")
    check(content(home / "ponder.db") == before, "a newer database is not changed")
    shutil.rmtree(home)
    for version in RELEASED:
        home, jobs = schema(version)
        fault = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", home / f"ponder.db.before-{NEWEST}.part", "-e",
                 "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=3+"]
        said = start_refused(home, fault)
        check(said.returncode == 1 and "the copy that is made first failed" in said.stderr and "make room" in said.stderr,
              f"no room for the copy of schema {version} is refused: {said.returncode} {said.stderr}")
        check(jobs_of(home / "ponder.db") == jobs and not list(home.glob("*.part*")),
              f"without room for its copy the database of schema {version} is not changed")
        with Daemon("--engine", "stub", home=home) as daemon:
            daemon.start()
            look(daemon, jobs, f"schema {version} with room again", True)
            daemon.stop()
        mode = (home / f"ponder.db.before-{NEWEST}").stat().st_mode & 0o777
        check(mode == 0o600, f"the copy is private, not {mode:o}")
        check("is kept in" in (home / "stderr.log").read_text(), "the log tells of the copy")
        shutil.rmtree(home)


kills()
if not PLANTED:
    refusals()
figure(14, f"{Counts.kills} kills during a migration or a rebuild: jobs lost", Counts.lost, "0")
figure(14, "jobs that came out of it as something else", Counts.untrue, "0")
finish("migration")
