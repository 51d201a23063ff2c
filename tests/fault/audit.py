"""What must hold of the job database, one query a promise, and what the scripted engine must have said.

A query names a promise and finds the rows that break it; `audit` runs them all, on the database of a
daemon that is dead or alive. The second half makes the stub's text again: a pure function of the
prompt, written here from its description and not shared with the program.
"""
import contextlib
import hashlib
import pathlib
import sqlite3
import zlib

from harness import check

ENDED = "('completed', 'incomplete', 'failed', 'cancelled', 'interrupted')"
LIVE = "('queued', 'running')"

# Each finds rows (id, what is seen) that must not be.
QUERIES = {
    "a state is one of the eight":
        f"select id, state from job where state not in {ENDED} and state not in {LIVE} and state <> 'expired'",
    "a job has its request":
        "select id, state from job where state <> 'expired' and seq not in (select job from request)",
    "a job began queued":
        "select id, min(c.seq) from job left join state_change c on c.job = job.seq where job.state <> 'expired' "
        "group by id having min(c.seq) is not 1 or (select state from state_change where job = job.seq and seq = 1) "
        "<> 'queued'",
    "a live job has not ended":
        f"select id, c.state from job join state_change c on c.job = job.seq where job.state in {LIVE} and "
        f"c.state in {ENDED}",
    "an end is told once":
        f"select id, count(c.seq) from job left join state_change c on c.job = job.seq and c.state in {ENDED} "
        f"where job.state in {ENDED} group by id having count(c.seq) <> 1",
    "a row and its last event say the same":
        "select id, job.state || ' but ' || c.state from job join state_change c on c.job = job.seq where "
        "job.state <> 'expired' and c.seq = (select max(seq) from state_change where job = job.seq) and "
        "c.state || c.reason <> job.state || job.reason",
    "every move is legal":
        "select id, old.state || ' to ' || new.state from job join state_change old on old.job = job.seq "
        "join state_change new on new.job = job.seq and new.seq = old.seq + 1 where not "
        "((old.state = 'queued' and new.state in ('running', 'cancelled', 'failed')) or "
        "(old.state = 'running' and new.state = 'running' and new.cut) or "
        f"(old.state = 'running' and new.state in {ENDED}) or (old.state = 'running' and new.state = 'queued'))",
    "positions grow":
        "select id, new.position from job join state_change old on old.job = job.seq "
        "join state_change new on new.job = job.seq and new.seq = old.seq + 1 "
        "where new.position <= old.position or new.text_bytes < old.text_bytes",
    "events are numbered without a gap":
        "select id, count(*) from job join state_change c on c.job = job.seq group by id having count(*) <> max(c.seq)",
    "every claim is in the history":
        "select id, claims from job where state <> 'expired' and claims <> (select count(*) from state_change "
        "where job = job.seq and state = 'running' and cut = 0)",
    "an end has its whole text":
        f"select id, chunk_count || ' chunks' from job where state in {ENDED} and (chunk_count <> (select count(*) "
        "from chunk where job = job.seq) or text_bytes <> (select coalesce(sum(length(text)), 0) from chunk "
        "where job = job.seq))",
    "an end has the text that was hashed":
        f"select id, state from job where state in {ENDED} and text_sha256 <> text_hash(job.seq)",
    "chunks are numbered without a gap":
        "select id, count(*) from job join chunk on chunk.job = job.seq group by id "
        "having count(*) <> max(chunk.seq) + 1",
    "a chunk is what was written":
        "select id, chunk.seq from job join chunk on chunk.job = job.seq where chunk.crc32 <> chunk_crc(job.seq, "
        "chunk.seq, chunk.attempt, channel, text, token_count, tokens)",
    "a job is what was written": "select id, state from job where seal is not crc(JOB)",
    "an event is what was written":
        "select id, c.seq from job join state_change c on c.job = job.seq where c.crc32 is not crc(c.job, c.seq, "
        "c.position, c.text_bytes, c.cut, c.state, c.reason, c.attempt, c.at_ms, c.note)",
    "a request is what was written":
        "select id, state from job join request on request.job = job.seq where request_crc32 is not "
        "crc(request.job, body)",
    "a cancel outlasts everything":
        "select id, state from job where cancel_requested and state not in ('running', 'cancelled', 'expired')",
    "a failed job has its reason":
        "select id, reason from job where state = 'failed' and (reason = '' or error_message = '')",
    "a key is one job":
        "select min(id), count(*) from job where idempotency_key is not null group by idempotency_key "
        "having count(*) > 1",
    "nothing belongs to no job":
        "select 'chunk', job from chunk where job not in (select seq from job) union all "
        "select 'request', job from request where job not in (select seq from job) union all "
        "select 'event', job from state_change where job not in (select seq from job)",
}


def number(value):
    return value.to_bytes(8, "little", signed=True)


def chunk_crc(job, seq, attempt, channel, text, token_count, tokens):
    head = b"".join(number(n) for n in (job, seq, attempt, channel, len(text), token_count))
    return zlib.crc32(head + text + tokens)


def crc(*values):
    """CRC-32 over types and values, as the seal of a row is made."""
    parts = []
    for value in values:
        kind = {int: 1, float: 2, str: 3, bytes: 4, type(None): 5}[type(value)]
        parts.append(number(kind))
        if isinstance(value, int):
            parts.append(number(value))
        elif value is not None:
            data = value.encode() if isinstance(value, str) else value
            parts += [number(len(data)), data]
    return zlib.crc32(b"".join(parts))


def columns_under_seal(database):
    """Of a job: all but the seal itself."""
    return ", ".join(row[1] for row in database.execute("pragma table_info(job)") if row[1] != "seal")


def text_hash(rows):
    """SHA-256 over the runs of one channel, each behind its letter."""
    digest, last = hashlib.sha256(), None
    for channel, text in rows:
        if not text:
            continue
        if channel != last:
            digest.update(b"A" if channel else b"R")
            last = channel
        digest.update(text)
    return digest.digest()


def connect(home):
    """The database, to be read: nothing is written to it, and no log is emptied."""
    database = sqlite3.connect(f"file:{pathlib.Path(home)}/ponder.db?mode=ro", uri=True, timeout=20)
    database.row_factory = sqlite3.Row
    database.create_function("chunk_crc", 7, chunk_crc)
    database.create_function("crc", -1, crc)
    database.create_function("text_hash", 1, lambda job: text_hash(
        database.execute("select channel, text from chunk where job = ? order by seq", (job,)).fetchall()))
    return database


def find(database, name):
    """The rows that break one promise."""
    return [tuple(row) for row in database.execute(QUERIES[name].replace("JOB", columns_under_seal(database)))]


def audit(home, when=""):
    """Runs the queries; every row found is a breach, at most three told of each. Returns the count."""
    found = 0
    with contextlib.closing(connect(home)) as database:
        for name in QUERIES:
            broken = find(database, name)
            found += len(broken)
            for row in broken[:3]:
                check(False, f"{name}{when}: {row[0]} {row[1]}" + (f" ({len(broken)} rows)" if len(broken) > 3 else ""))
    return found


def rows(home, query="select * from job", values=()):
    with contextlib.closing(connect(home)) as database:
        return [dict(row) for row in database.execute(query, values)]


def stored_text(home, job_id):
    """(reasoning, answer) of a job as the database holds them."""
    texts = [b"", b""]
    for row in rows(home, "select channel, text from chunk join job on chunk.job = job.seq where id = ? "
                          "order by chunk.seq", (job_id,)):
        texts[row["channel"]] += row["text"]
    return texts[0].decode(errors="replace"), texts[1].decode(errors="replace")


# --- the scripted engine's text --------------------------------------------------------------------

WORDS = ("amber basin cedar delta ember fjord grove heath inlet jetty knoll larch marsh north ocean plain quartz ridge "
         "stream tarn upland valley weald xenon yarrow zephyr basalt coral dune estuary flint glade").split()
MASK = (1 << 64) - 1


def fnv1a(text):
    value = 14695981039346656037
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) & MASK
    return value


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def pure_text(task, tokens, think):
    """(reasoning, answer) that the stub makes of a task without a system prompt, context or files."""
    seed = fnv1a(f"user: {task}\n")

    def words(count, thinking):
        return " ".join(WORDS[mix(seed ^ mix(2 * i + thinking)) % len(WORDS)] for i in range(count))
    return words(think, 1), words(tokens, 0)
