-- A checksum for every row whose change would not show: SQLite checks its own structure only. `seal`
-- covers all other columns of a job and the checksum of its request; every write renews it.
-- ponder_crc32 is a function of the daemon's connection (jobs/store/seal.h).

ALTER TABLE job ADD COLUMN request_crc32 INTEGER;
ALTER TABLE job ADD COLUMN seal INTEGER;
ALTER TABLE state_change ADD COLUMN crc32 INTEGER;

-- These say that nothing changes a row that has ended, which holds but for this.
DROP TRIGGER state_change_terminal;

UPDATE job SET request_crc32 =
  (SELECT ponder_crc32(job, body) FROM request WHERE request.job = job.seq);
UPDATE job SET seal = ponder_crc32(
  seq, id, lane, state, reason, workspace, label, idempotency_key, body_sha256, parent_id,
  effort_requested, deadline_ms, told, cancel_requested, pinned, read_ms, deaths, attempt,
  claims, instance, created_ms, started_ms, ended_ms, run_ms, facts, note, error_code,
  error_message, error_hint, reasoning_chars, answer_chars, chunk_count, text_bytes,
  text_sha256, summary, request_crc32);
UPDATE state_change SET crc32 = ponder_crc32(
  job, seq, position, text_bytes, cut, state, reason, attempt, at_ms, note);

CREATE TRIGGER state_change_terminal BEFORE UPDATE ON state_change
WHEN (SELECT state FROM job WHERE seq = OLD.job) <> 'running'
BEGIN
  SELECT RAISE(ABORT, 'the history of a job never changes');
END;

-- The schema's version once more, beside the one in the file's header: a header that was damaged
-- does not pass for that of another version.
CREATE TABLE about (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  schema_version INTEGER NOT NULL
) STRICT;
INSERT INTO about VALUES (1, 3);
