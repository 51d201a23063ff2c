#!/usr/bin/env python3
"""kill -9 of the worker and of ponder-mcp, in the middle of work: /health is truthful within two
seconds of a worker's death, the job goes on, and nothing depends on ponder-mcp. The daemon itself is
killed in random_kill_test.py and syscall_kill_test.py.

Planted bugs: mcp_child_test.py and health_test.py, which measure the same more closely.
"""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import Daemon, Mcp, alive, check, finish, os, time, wait_until

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


worker_killed()
mcp_killed()
finish("kill -9")
