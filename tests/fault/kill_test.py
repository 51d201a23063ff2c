#!/usr/bin/env python3
"""kill -9 of the daemon, of the worker and of ponder-mcp, in the middle of work.

None of the accepted jobs may be lost or stand twice, the partial text is an exact prefix of the
final text, two seconds after a restart no row carries the dead instance, and /health is truthful
within two seconds of a worker's death.
"""
import pathlib
import signal
import sqlite3
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness
from harness import BIN, PLANTED, TERMINAL, Daemon, Mcp, check, cli, door, finish, json, os, time, wait_until

JOBS = 30
SANITIZED = "TSAN_OPTIONS" in os.environ  # slower than the pace of the kills: less is seen of each text


def task(number):
    return f"job number {number} [[stub tokens=120 think=30 rate=400]]"


def rows(daemon):
    """What stands in the database, read while no daemon runs or read-only beside it."""
    with sqlite3.connect(f"file:{daemon.home}/ponder.db?mode=ro", uri=True) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("select * from job")]


def daemon_killed():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        via = door(daemon)
        accepted, partial, snapshots = {}, {}, []
        stop = threading.Event()

        def submit(offset):
            for number in range(offset, JOBS, 3):
                reply = daemon.submit(task(number), via=via)
                if check(reply.status == 201, f"job {number} is accepted, got {reply.status}"):
                    accepted[reply.json["job_id"]] = number

        def look():  # what a reader saw of a text before the kill
            while not stop.is_set():
                for job_id in list(accepted):
                    try:
                        seen = daemon.text(job_id, via=via)
                        if len(seen) > len(partial.get(job_id, "")):
                            partial[job_id] = seen
                    except Exception:
                        pass
                time.sleep(0.05)

        threads = [threading.Thread(target=submit, args=(k,)) for k in range(3)]
        reader = threading.Thread(target=look, daemon=True)
        for t in threads:
            t.start()
        reader.start()
        for t in threads:
            t.join()
        kills = 4
        for round_number in range(kills):
            time.sleep(1.2)
            before = {r.get("id"): r for r in rows(daemon)}
            snapshots.append(dict(partial))
            daemon.kill()
            dead = {r["instance"] for r in rows(daemon) if r.get("instance")}
            daemon.start()
            time.sleep(2)
            for row in rows(daemon):
                check(row["state"] in TERMINAL or not row.get("instance") or row["instance"] not in dead,
                      f"two seconds after restart {round_number} job {row['id']} carries a dead instance")
                check(row["state"] in TERMINAL | {"queued", "running"}, f"job {row['id']} is {row['state']}")
                old = before.get(row["id"])
                check(not old or old["state"] not in TERMINAL or old["state"] == row["state"],
                      f"the terminal state of {row['id']} changed")
        ended = {}
        for job_id in accepted:
            reply = daemon.call("GET", f"/v1/jobs/{job_id}", via=via)
            if not check(reply.status == 200, f"accepted job {job_id} is lost"):
                continue
            ended[job_id] = daemon.wait_terminal(job_id, 60, via=via)
        stop.set()
        reader.join()
        listed = [job["job_id"] for job in daemon.all_jobs(via=via)]
        check(len(listed) == len(set(listed)), "an id is listed twice")
        check(len(listed) == len(accepted), f"{len(accepted)} accepted, {len(listed)} stand in the queue: twice or lost")
        reference = {}
        for job_id, job in ended.items():
            check(job["state"] == "completed", f"{job_id} ended {job['state']} {job.get('reason')}")
            whole = daemon.text(job_id, via=via)
            for seen in snapshots:  # what was read before each kill
                check(whole.startswith(seen.get(job_id, "")), f"the partial text of {job_id} is no prefix of the whole")
            again = daemon.submit(task(accepted[job_id]), force_new=True) if len(reference) < 3 else None
            if again is not None:  # what an undisturbed run of the same prompt says
                other = daemon.wait_terminal(again.json["job_id"], 60)
                reference[job_id] = daemon.text(other["job_id"])
                check(reference[job_id] == whole, f"{job_id} differs from an undisturbed run")
        cut = [seen for seen in snapshots if any(0 < len(text) < len(partial[k]) for k, text in seen.items())]
        check(len(cut) >= 2, f"the reader saw partial texts before {len(cut)} of {kills} kills") if not SANITIZED else None


def worker_killed():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        job_id = daemon.submit("long [[stub tokens=400 think=20 rate=200]]").json["job_id"]
        wait_until(lambda: daemon.job(job_id)["phase"] in ("thinking", "answering"), 10, "the job runs")
        pid = daemon.try_health()["engine"]["pid"]
        os.kill(pid, signal.SIGKILL)

        def truthful():
            health = daemon.try_health()
            return health.get("engine", {}).get("restarts", 0) >= 1 or health.get("state") not in ("ready", "busy")

        wait_until(truthful, 2, "/health tells of the worker's death")
        job = daemon.wait_terminal(job_id, 30)
        check(job["state"] == "completed", f"the job goes on after the worker was killed, it is {job['state']}")
        check(job["attempt"] in (0, 1), f"a kill from outside costs no attempt, attempt is {job['attempt']}")
        new = daemon.try_health()["engine"]["pid"]
        check(new and new != pid, "a new worker runs")
        daemon.kill()
        wait_until(lambda: not alive(new), 2, "the worker dies with the daemon")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def mcp_killed():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        mcp = Mcp(daemon.home)
        submitted = mcp.tool("submit", task="by an agent [[stub tokens=300 rate=150]]")
        job_id = submitted["structuredContent"]["job_id"]
        mcp.begin("tools/call", {"name": "status", "arguments": {"job_id": job_id, "wait_s": 40}})
        time.sleep(0.3)
        mcp.process.kill()
        mcp.process.wait()
        check(daemon.job(job_id)["state"] in ("queued", "running"), "the job goes on without ponder-mcp")
        other = Mcp(daemon.home)
        listed = other.tool("status")["structuredContent"]["jobs"]
        check(job_id in [job["job_id"] for job in listed], "status of a new process lists the job")
        other.close()
        check(daemon.wait_terminal(job_id, 30)["state"] == "completed", "the job completes")


daemon_killed()
if not PLANTED:
    worker_killed()
    mcp_killed()
finish("kill -9")
