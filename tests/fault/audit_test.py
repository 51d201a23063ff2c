#!/usr/bin/env python3
"""Every query of audit.py finds the row that it is for: each is shown a database that breaks its promise
and no other query's silence is taken for granted. An undamaged database has no findings.

--planted blind: the queries are asked of the undamaged copy, and the test must notice.
"""
import contextlib
import shutil
import sqlite3
import tempfile

import profile  # noqa: F401  first: it knows where harness is
import audit
from harness import PLANTED, Daemon, check, finish, wait_until

DONE = "(select seq from job where label = 'done')"
RUNNING = "(select seq from job where label = 'running')"
# query: what breaks its promise
BREAKS = {
    "a state is one of the eight": f"update job set state = 'lost' where seq = {DONE}",
    "a job has its request": f"delete from request where job = {DONE}",
    "a job began queued": f"update state_change set state = 'running' where job = {RUNNING} and seq = 1",
    "a live job has not ended": f"update job set state = 'running', instance = 'x' where seq = {DONE}",
    "an end is told once": f"delete from state_change where job = {DONE} and state = 'completed'",
    "a row and its last event say the same": f"update job set state = 'queued', instance = null where seq = {RUNNING}",
    "every move is legal": f"update state_change set state = 'queued' where job = {DONE} and seq = 2",
    "positions grow": f"update state_change set position = 1 where job = {DONE}",
    "events are numbered without a gap": f"update state_change set seq = seq + 5 where job = {DONE} and seq = 3",
    "every claim is in the history": f"update job set claims = claims + 1 where seq = {DONE}",
    "an end has its whole text": f"delete from chunk where job = {DONE} and seq = 0",
    "an end has the text that was hashed": f"update chunk set text = cast(replace(text, 'a', 'e') as blob) where job = {DONE}",
    "chunks are numbered without a gap": f"update chunk set seq = seq + 9 where job = {DONE} and "
                                         f"seq = (select max(seq) from chunk where job = {DONE})",
    "a chunk is what was written": f"update chunk set token_count = token_count + 1 where job = {RUNNING} and seq = 0",
    "a job is what was written": f"update job set note = 'x' where seq = {RUNNING}",
    "an event is what was written": f"update state_change set at_ms = at_ms + 1 where job = {DONE} and seq = 1",
    "a request is what was written": f"update request set body = replace(body, 'done', 'gone') where job = {DONE}",
    "a cancel outlasts everything": f"update job set cancel_requested = 1 where seq = {DONE}",
    "a failed job has its reason": f"update job set state = 'failed' where seq = {DONE}",
    "a key is one job": "drop index job_key; update job set idempotency_key = 'same'",
    "nothing belongs to no job": "insert into request (job, body) values (99, '{}')",
}


def broken(home, change):
    copy = tempfile.mkdtemp(prefix="ponder-e2e-")
    shutil.copytree(home, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock"))
    with sqlite3.connect(f"{copy}/ponder.db") as database:
        for name, in database.execute("select name from sqlite_schema where type = 'trigger'").fetchall():
            database.execute(f"drop trigger {name}")
        database.commit()
        database.executescript(f"pragma foreign_keys = off; pragma ignore_check_constraints = on; {change};")
    database.close()
    return copy


def found(home, name):
    with contextlib.closing(audit.connect(home)) as database:
        return audit.find(database, name)


with Daemon("--engine", "stub") as daemon:
    (daemon.home / "ponder.toml").write_text("max_running_batch = 2\n")
    daemon.start()
    running = daemon.submit("running [[stub tokens=4000 rate=300]]", label="running", max_answer_tokens=5000).json["job_id"]
    done = daemon.submit("done [[stub tokens=200 think=20 rate=400]]", label="done", idempotency_key="k").json["job_id"]
    daemon.wait_terminal(done)
    wait_until(lambda: len(audit.stored_text(daemon.home, running)[1]) > 100, 10, "a text is stored")
    daemon.kill()
    for name in audit.QUERIES:
        check(not found(daemon.home, name), f"nothing to find: {name}")
        if not check(name in BREAKS, f"no broken database for: {name}"):
            continue
        copy = broken(daemon.home, BREAKS[name] if PLANTED != "blind" else "select 1")
        check(found(copy, name), f"found in a database that breaks it: {name}")
        shutil.rmtree(copy, ignore_errors=True)
    print(f"{len(audit.QUERIES)} queries", flush=True)
finish("audit")
