#!/usr/bin/env python3
"""kill -9 of the daemon at random moments, while clients submit and while texts stream.

random_kills  four clients write down every id they were told, the daemon is killed 20 to 150 ms after
              it answers (one time in ten while it is still starting), and is started again. Two of the
              clients send an idempotency key and try again after a lost answer.
one_key_each  many submitters send the same keys at once, through kills.
streams       texts are read as they are made until the daemon or its worker is killed; what is stored
              must be an exact beginning of the text, at most 500 ms behind what was told.

Planted: late_commit (told before committed), submit_twice, corrupt_text, lost_key, late_text (text is
stored every five seconds).
"""
import http.client
import json
import os
import random
import signal
import threading
import time

from profile import figure, size  # first: it knows where harness is
import audit
from harness import PLANTED, PlantingProxy, Daemon, UnixConnection, check, breaches, finish, planted_sqlite, wait_until

SEED = int(os.environ.get("PONDER_SEED", random.randrange(1 << 32)))
CHANCE = random.Random(SEED)
SETTINGS = "max_queued = 100000\nkeep_unread = 100000\nkeep_read = 100000\n"
PROXIED = ("submit_twice", "corrupt_text")
SANITIZED = "TSAN_OPTIONS" in os.environ  # slow: fewer of everything
UNREACHABLE = (OSError, http.client.HTTPException, ValueError)
ANSWERED = {200, 201}


def new_daemon(at_once=24):
    daemon = Daemon("--engine", "stub", environment=planted_sqlite(PLANTED if PLANTED not in PROXIED else None))
    settings = SETTINGS + f"max_running_batch = {at_once}\n"
    if PLANTED == "late_text":
        settings += "flush_ms = 5000\n"
    (daemon.home / "ponder.toml").write_text(settings)
    return daemon


def door(daemon):
    return PlantingProxy(daemon.socket, PLANTED).path if PLANTED in PROXIED else daemon.socket


def up(daemon):
    wait_until(lambda: daemon.try_health().get("state"), 20, "the daemon answers after a kill")


def found_enough():
    return PLANTED and breaches


class Client(threading.Thread):
    """Submits one job after the other; `told` is what it was told, `unknown` what had no answer."""

    def __init__(self, daemon, via, number, with_key):
        super().__init__(daemon=True)
        self.server, self.via, self.number, self.with_key = daemon, via, number, with_key
        self.over = threading.Event()
        self.told, self.unknown, self.tasks = {}, set(), {}
        self.retried = 0

    def run(self):
        count = 0
        while not self.over.is_set():
            count += 1
            label = f"c{self.number}-{count}"
            tokens, rate = (200, 600) if count % 8 == 0 else (6, 4000)
            task = f"job {label} [[stub tokens={tokens} think=4 rate={rate}]]"
            self.tasks[label] = (task, tokens)
            body = {"label": label, **({"idempotency_key": label} if self.with_key else {})}
            self.submit(label, task, body)
            time.sleep(0.004)

    def submit(self, label, task, body):
        attempts = 0
        while True:
            attempts += 1
            try:
                reply = self.server.submit(task, via=self.via, **body)
                answer = reply.json
            except UNREACHABLE:
                self.unknown.add(label)
                if not self.with_key or self.over.is_set():
                    return
                time.sleep(0.003)
                continue
            if reply.status == 503 and not self.over.is_set():  # stopping or starting: a refusal, with no id
                time.sleep(0.003)
                continue
            if check(reply.status in ANSWERED, f"{label} is accepted, got {reply.status} {reply.body[:200]}"):
                self.told[label] = answer["job_id"]
                self.unknown.discard(label)
                self.retried += attempts > 1
            return


def labels(home):
    ids = {}
    for row in audit.rows(home, "select id, label from job"):
        ids.setdefault(row["label"], []).append(row["id"])
    return ids


def nothing_lost(home, clients, when):
    """The promise itself: what was told is there once, what was not told at most once."""
    there = labels(home)
    lost = twice = 0
    for client in clients:
        for label, job_id in dict(client.told).items():
            found = there.get(label, [])
            lost += job_id not in found
            check(job_id in found, f"accepted job {job_id} ({label}) is lost{when}")
            twice += len(found) > 1
            check(len(found) <= 1, f"{label} stands twice or more{when}: {found}")
        for label in set(client.unknown):
            twice += len(there.get(label, [])) > 1
            check(len(there.get(label, [])) <= 1, f"{label}, sent again after a lost answer, stands twice{when}")
    return lost, twice


def texts_are_beginnings(home, clients, whole, when):
    """Each stored text is the beginning of what the engine says; of a completed job, all of it."""
    tasks = {label: task for client in clients for label, task in dict(client.tasks).items()}
    wrong = 0
    texts = {}
    for row in audit.rows(home, "select label, state, channel, text from chunk join job on chunk.job = job.seq "
                                "order by job.seq, chunk.seq"):
        texts.setdefault((row["label"], row["state"]), [b"", b""])[row["channel"]] += row["text"]
    for (label, state), stored in texts.items():
        if not whole and state == "completed" and CHANCE.random() > 0.1:
            continue
        task, tokens = tasks[label]
        pure = [text.encode() for text in audit.pure_text(task, tokens, 4)]
        good = stored == pure if state == "completed" else all(p.startswith(s) for p, s in zip(pure, stored))
        wrong += not good
        check(good, f"the stored text of {label} ({state}) is no prefix of the whole{when}")
    return wrong


def random_kills(kills, least):
    began = time.monotonic()
    with new_daemon() as daemon:
        daemon.start()
        via = door(daemon)
        clients = [Client(daemon, via, k, with_key=k >= 2) for k in range(4)]
        for client in clients:
            client.start()
        for kill in range(1, kills + 1):
            time.sleep(CHANCE.uniform(0.02, 0.15))
            daemon.kill()
            if kill % 10 == 0 or PLANTED:
                when = f" after kill {kill}"
                nothing_lost(daemon.home, clients, when)
                audit.audit(daemon.home, when)
                texts_are_beginnings(daemon.home, clients, False, when)
                if found_enough():
                    break
            if CHANCE.random() < 0.1:  # killed while it starts and moves on what its predecessor left
                daemon.start(wait_ready=False)
                time.sleep(CHANCE.uniform(0.005, 0.08))
                daemon.kill()
            daemon.start(wait_ready=False)
            up(daemon)
        while sum(len(client.told) for client in clients) < least and not found_enough():
            time.sleep(0.05)
        for client in clients:
            client.over.set()
        for client in clients:
            client.join(30)
        drained = wait_until(lambda: (lambda q: q and q["running"] == 0 and q["batch"] == 0)(
            daemon.try_health().get("queue")), 300, "every job has ended") if not found_enough() else None
        lost, twice = nothing_lost(daemon.home, clients, " in the end")
        double = audit.audit(daemon.home, " in the end")
        wrong = texts_are_beginnings(daemon.home, clients, True, " in the end")
        told = {job_id: client.tasks[label] for client in clients for label, job_id in client.told.items()}
        if drained:
            unended = audit.rows(daemon.home, "select id, state, reason from job where state <> 'completed'")
            check(not unended, f"every job completes, but {unended[:3]}")
            for job_id in CHANCE.sample(sorted(told), min(20 if PLANTED else 300, len(told))):
                task, tokens = told[job_id]
                job = daemon.job(job_id, via=via)
                check(job and job.get("state") == "completed" and daemon.text(job_id, via=via) ==
                      audit.pure_text(task, tokens, 4)[1], f"{job_id} as the API tells it is no prefix of the whole")
        figure(1, f"{kills} kills at random, {len(told)} jobs accepted: lost", lost, "0")
        figure(2, "rows that break an audit query, texts that are not the engine's", f"{double}, {wrong}", "0, 0")
        figure(9, f"{sum(c.retried for c in clients)} submits sent again with their key after a kill: twice", twice, "0")
        print(f"random kills: {time.monotonic() - began:.1f} s", flush=True)


def one_key_each(submitters, keys, kills):
    """Everybody sends every key: one job a key, whoever came first and however often it was sent."""
    began = time.monotonic()
    with new_daemon() as daemon:
        daemon.start()
        ids = {key: set() for key in range(keys)}
        mutex, over = threading.Lock(), threading.Event()

        def send(number):
            order = list(range(keys))
            random.Random(SEED + number).shuffle(order)
            while True:  # again and again, until the last kill
                send_all(order)
                if over.is_set():
                    return

        def send_all(order):
            for key in order:
                while True:
                    try:
                        reply = daemon.submit(f"key {key} [[stub tokens=2 rate=4000]]", idempotency_key=f"k{key}")
                        answer = reply.json
                    except UNREACHABLE:
                        time.sleep(0.005)
                        continue
                    if reply.status == 503:
                        time.sleep(0.005)
                        continue
                    check(reply.status in ANSWERED, f"key {key} again is {reply.status} {reply.body[:200]}")
                    with mutex:
                        ids[key].add(answer.get("job_id"))
                    break

        threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(submitters)]
        for thread in threads:
            thread.start()
        killed = 0
        while killed < kills:
            time.sleep(CHANCE.uniform(0.02, 0.15))
            daemon.kill()
            killed += 1
            daemon.start(wait_ready=False)
            up(daemon)
        over.set()
        for thread in threads:
            thread.join(120)
            check(not thread.is_alive(), "every submit has an answer")
        several = [key for key, found in ids.items() if len(found) != 1]
        check(not several, f"a key is one job, but {len(several)} of {keys} are not: {several[:3]}")
        stored = audit.rows(daemon.home, "select id from job")
        check(len(stored) == keys, f"{keys} keys are {len(stored)} jobs: twice or lost")
        other = 0
        for key in range(keys):
            reply = daemon.submit(f"key {key}, another body", idempotency_key=f"k{key}")
            other += reply.status == 409 and reply.json["error"]["code"] == "idempotency_mismatch"
        check(other == keys, f"another body under a used key is 409: {other} of {keys}")
        figure(9, f"{submitters} submitters x {keys} keys, {killed} kills: duplicates or lost, other bodies taken",
               f"{abs(len(stored) - keys) + len(several)}, {keys - other}", "0, 0")
        print(f"one key each: {time.monotonic() - began:.1f} s", flush=True)


class Reader(threading.Thread):
    """Reads a job's events and keeps when it had how many bytes of text; goes on after a kill."""

    def __init__(self, daemon, job_id):
        super().__init__(daemon=True)
        self.server, self.job_id = daemon, job_id
        self.seen = [(0.0, 0)]  # (time, bytes): of both channels together
        self.texts = {"reasoning": "", "answer": ""}
        self.position, self.cut = 0, False
        self.over = False

    def run(self):
        while not self.over:
            try:
                self.read()
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)

    def read(self):
        connection = UnixConnection(self.server.socket, 70)
        connection.request("GET", f"/v1/jobs/{self.job_id}/events?after={self.position}")
        answer = connection.getresponse()
        if answer.status != 200:
            time.sleep(0.02)
            return
        kind = position = None
        while True:
            line = answer.readline()
            if not line.endswith(b"\n"):
                return
            line = line.decode().rstrip("\n")
            if line.startswith("id:"):
                position = int(line[3:])
            elif line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                data = json.loads(line[5:])
                if kind == "state" and data.get("text_cut_to_bytes") is not None:
                    self.cut = True
                if kind in self.texts:
                    self.texts[kind] += data["text"]
                    size_now = sum(len(text.encode()) for text in self.texts.values())
                    self.seen.append((time.monotonic(), size_now))
            elif not line and position is not None:
                self.position = position
                if kind == "end":
                    self.over = True
                    return


def streams(rounds, at_once):
    """Partial output is an honest prefix: of what was told 500 ms before the kill nothing is missing."""
    began = time.monotonic()
    lags, bad, wrong_state, killed_streams = [], 0, 0, 0
    tokens, think = 320, 60
    for number in range(rounds):
        with new_daemon(at_once) as daemon:
            daemon.start()
            via = door(daemon)
            tasks = [f"stream {number} {k} [[stub tokens={tokens} think={think} rate=160]]" for k in range(at_once)]
            ids = [daemon.submit(task).json["job_id"] for task in tasks]
            readers = [Reader(daemon, job_id) for job_id in ids]
            for reader in readers:
                reader.start()
            wait_until(lambda: all(len(r.seen) > 1 for r in readers), 20, "every text has begun")
            time.sleep(CHANCE.uniform(0.3, 1.3))
            of_worker = number % 2 == 1
            pid = daemon.try_health()["engine"]["pid"]
            killed_at = time.monotonic()
            if of_worker:
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: daemon.try_health()["engine"]["restarts"] > 0, 5, "the worker is replaced")
            else:
                daemon.kill()
            for job_id, task, reader in zip(ids, tasks, readers):
                killed_streams += 1
                pure = audit.pure_text(task, tokens, think)
                stored = audit.stored_text(daemon.home, job_id)
                bytes_stored = sum(len(text.encode()) for text in stored)
                prefix = all(p.startswith(s) for p, s in zip(pure, stored))
                bad += not prefix
                check(prefix, f"the stored text of {job_id} is no prefix of the whole")
                if of_worker:
                    continue  # the daemon lives: nothing of what it told is lost
                first_missing = min((t for t, told in list(reader.seen) if told > bytes_stored), default=killed_at)
                lags.append(killed_at - first_missing)
            states = [row for row in audit.rows(daemon.home) if row["state"] not in ("running", "queued")]
            wrong_state += len(states)
            check(not states, f"a cut job is not ended, but {[(r['id'], r['state']) for r in states][:3]}")
            if not of_worker:
                check(max(lags) <= 0.5, f"the stored text is {max(lags) * 1000:.0f} ms behind what was told")
                daemon.start()
            if PLANTED == "late_text":
                continue
            for job_id, task, reader in zip(ids, tasks, readers):
                job = daemon.wait_terminal(job_id, 60)
                pure = audit.pure_text(task, tokens, think)
                check(job["state"] == "completed", f"{job_id} goes on to its end, it is {job['state']}")
                got = daemon.text(job_id, "reasoning", via=via), daemon.text(job_id, via=via)
                bad += got != pure
                check(got == pure, f"the text of {job_id} after the kill is no prefix of the whole")
                reader.join(5)
                if of_worker and not reader.cut:  # read without a gap and without a word twice
                    told = reader.texts["reasoning"], reader.texts["answer"]
                    check(told == pure, f"the events of {job_id} tell {len(told[0])}+{len(told[1])} characters, "
                                        f"not {len(pure[0])}+{len(pure[1])}")
            audit.audit(daemon.home, f" after streams {number}")
    worst = max(lags) if lags else 0
    figure(4, f"{killed_streams} streams cut by kill -9: not an exact prefix, wrong state", f"{bad}, {wrong_state}", "0, 0")
    figure(4, "stored text behind what was told before the kill, at most", f"{worst * 1000:.0f} ms", "500 ms")
    print(f"streams: {time.monotonic() - began:.1f} s", flush=True)


print(f"seed {SEED}", flush=True)
if PLANTED in ("late_commit", "submit_twice", "corrupt_text"):
    random_kills(5 if PLANTED == "corrupt_text" else 40, 60)
elif PLANTED == "lost_key":
    one_key_each(4, 10, 2)
elif PLANTED == "late_text":
    streams(6, 8)  # one kill may come before half a second of text
elif SANITIZED:
    random_kills(15, 40)
    one_key_each(4, 10, 3)
else:
    random_kills(size(100, 500), size(1000, 10000))
    one_key_each(size(10, 50), size(20, 200), size(10, 300))
    streams(size(2, 15), size(16, 20))
finish("random kills")
