"""The checksums of rows (jobs/store/seal.h), for harnesses that write rows themselves while no daemon
runs: a row without its checksum is damage."""
import zlib

JOB = ("seq, id, lane, state, reason, workspace, label, idempotency_key, body_sha256, parent_id, effort_requested, "
       "deadline_ms, told, cancel_requested, pinned, read_ms, deaths, attempt, claims, instance, created_ms, started_ms, "
       "ended_ms, run_ms, facts, note, error_code, error_message, error_hint, reasoning_chars, answer_chars, chunk_count, "
       "text_bytes, text_sha256, summary, request_crc32")
CHANGE = "job, seq, position, text_bytes, cut, state, reason, attempt, at_ms, note"


def ponder_crc32(*values):
    crc = 0
    for value in values:
        kind = {type(None): 5, int: 1, float: 2, str: 3, bytes: 4}[type(value)]
        crc = zlib.crc32(kind.to_bytes(8, "little"), crc)
        if kind == 1:
            crc = zlib.crc32(value.to_bytes(8, "little", signed=True), crc)
        elif kind != 5:
            data = value if kind == 4 else str(value).encode()
            crc = zlib.crc32(data, zlib.crc32(len(data).to_bytes(8, "little"), crc))
    return crc


def connect_function(db):
    db.create_function("ponder_crc32", -1, ponder_crc32, deterministic=True)


def seal(db):
    """Every row gets the checksum of what it says now."""
    connect_function(db)
    trigger = db.execute("select sql from sqlite_schema where name = 'state_change_terminal'").fetchone()
    db.execute("drop trigger if exists state_change_terminal")
    db.execute("update job set request_crc32 = (select ponder_crc32(r.job, r.body) from request r where r.job = job.seq) "
               "where state <> 'expired'")
    db.execute(f"update job set seal = ponder_crc32({JOB}) where seal is not ponder_crc32({JOB})")
    db.execute(f"update state_change set crc32 = ponder_crc32({CHANGE}) where crc32 is not ponder_crc32({CHANGE})")
    if trigger:
        db.execute(trigger[0])
