-- The first schema. Never edited after a release; a change is a new file.
-- Times are integer milliseconds since the epoch, from the daemon's clock. Order is `seq`, never a
-- time. The vocabulary of states and reasons and the legal moves are those of jobs/job.cc.

CREATE TABLE job (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE CHECK (length(id) = 26),
  lane TEXT NOT NULL CHECK (lane IN ('ask', 'batch')),
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'incomplete', 'failed',
                                       'cancelled', 'interrupted', 'expired')),
  reason TEXT NOT NULL DEFAULT '',
  workspace TEXT NOT NULL DEFAULT '',
  label TEXT NOT NULL DEFAULT '',
  idempotency_key TEXT,
  body_sha256 BLOB NOT NULL CHECK (length(body_sha256) = 32),
  parent_id TEXT,
  effort_requested TEXT NOT NULL,
  deadline_ms INTEGER CHECK (deadline_ms > 0),           -- of running time
  told INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),  -- an ask whose caller has its id
  cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
  pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
  read_ms INTEGER,                                       -- the answer was delivered in full
  deaths INTEGER NOT NULL DEFAULT 0 CHECK (deaths >= 0),   -- engine processes it brought down
  attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0), -- deaths + 1, from the first claim on
  claims INTEGER NOT NULL DEFAULT 0 CHECK (claims >= 0),   -- the fence: grows with every claim
  instance TEXT,                                         -- the daemon that runs it
  created_ms INTEGER NOT NULL,
  started_ms INTEGER,
  ended_ms INTEGER,
  run_ms INTEGER NOT NULL DEFAULT 0 CHECK (run_ms >= 0),   -- over all attempts
  facts TEXT NOT NULL DEFAULT '{}',                      -- measured fields of the envelope, JSON
  note TEXT NOT NULL DEFAULT '',
  error_code TEXT NOT NULL DEFAULT '',
  error_message TEXT NOT NULL DEFAULT '',
  error_hint TEXT NOT NULL DEFAULT '',
  reasoning_chars INTEGER NOT NULL DEFAULT 0,
  answer_chars INTEGER NOT NULL DEFAULT 0,
  chunk_count INTEGER,                                   -- with the next two: what the text must be
  text_bytes INTEGER,
  text_sha256 BLOB,
  summary TEXT NOT NULL DEFAULT '',                      -- what an expired job still says
  CHECK ((state IN ('queued', 'running')) = (ended_ms IS NULL)),
  CHECK ((state IN ('queued', 'running')) = (text_sha256 IS NULL)),
  CHECK ((chunk_count IS NULL) = (text_sha256 IS NULL) AND
         (text_bytes IS NULL) = (text_sha256 IS NULL)),
  CHECK ((state = 'running') = (instance IS NOT NULL)),
  CHECK (CASE state
           WHEN 'incomplete' THEN reason IN ('output_limit', 'reasoning_exhausted', 'stream_lost',
                                             'deadline', 'repetition', 'schema_invalid', 'stalled')
           WHEN 'failed' THEN reason IN ('engine_error', 'out_of_memory', 'storage', 'bad_request',
                                         'model_missing', 'poison')
           WHEN 'expired' THEN 1
           ELSE reason = '' END),
  CHECK ((state = 'failed') <= (error_code <> '')),
  CHECK (state <> 'expired' OR summary <> '')
) STRICT;

CREATE UNIQUE INDEX job_key ON job (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_live ON job (seq) WHERE state IN ('queued', 'running');
CREATE INDEX job_twin ON job (workspace, body_sha256) WHERE state IN ('queued', 'running');
CREATE INDEX job_workspace ON job (workspace, id);
CREATE INDEX job_state ON job (state, id);
CREATE INDEX job_ended ON job (state, ended_ms);
CREATE INDEX job_read ON job (ended_ms) WHERE pinned = 0 AND read_ms IS NOT NULL
  AND state IN ('completed', 'incomplete', 'failed', 'cancelled', 'interrupted');
CREATE INDEX job_unread ON job (ended_ms) WHERE pinned = 0 AND read_ms IS NULL
  AND state IN ('completed', 'incomplete', 'failed', 'cancelled', 'interrupted');

-- What is to be generated: big, written once, and so not in the row that changes.
CREATE TABLE request (
  job INTEGER PRIMARY KEY REFERENCES job (seq) ON DELETE CASCADE,
  body TEXT NOT NULL
) STRICT;

-- Every state a job was in. `position` numbers the events of its stream; `text_bytes` is how much
-- text came before.
CREATE TABLE state_change (
  job INTEGER NOT NULL REFERENCES job (seq) ON DELETE CASCADE,
  seq INTEGER NOT NULL CHECK (seq >= 1),
  position INTEGER NOT NULL CHECK (position >= 1),
  text_bytes INTEGER NOT NULL CHECK (text_bytes >= 0),
  cut INTEGER NOT NULL DEFAULT 0 CHECK (cut IN (0, 1)),
  state TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  note TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

-- Streamed text, appended. The checksum covers every other column.
CREATE TABLE chunk (
  job INTEGER NOT NULL REFERENCES job (seq) ON DELETE CASCADE,
  seq INTEGER NOT NULL CHECK (seq >= 0),
  attempt INTEGER NOT NULL,
  channel INTEGER NOT NULL CHECK (channel IN (0, 1)),  -- 0 reasoning, 1 answer
  text BLOB NOT NULL,
  token_count INTEGER NOT NULL CHECK (token_count >= 0),
  tokens BLOB NOT NULL,                                -- ids, 4 bytes each, little endian
  crc32 INTEGER NOT NULL,
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER job_begins_queued BEFORE INSERT ON job WHEN NEW.state <> 'queued'
BEGIN
  SELECT RAISE(ABORT, 'a job begins queued');
END;

CREATE TRIGGER job_legal_move BEFORE UPDATE OF state ON job
WHEN OLD.state <> NEW.state AND NOT (
  (OLD.state = 'queued' AND NEW.state IN ('running', 'cancelled', 'failed')) OR
  (OLD.state = 'running' AND NEW.state IN ('queued', 'completed', 'incomplete', 'failed',
                                           'cancelled', 'interrupted')) OR
  (OLD.state IN ('completed', 'incomplete', 'failed', 'cancelled', 'interrupted')
   AND NEW.state = 'expired'))
BEGIN
  SELECT RAISE(ABORT, 'no legal move of a job');
END;

-- A terminal row never changes but for its pin, its read mark, and its expiry, which keeps who it
-- was and empties the rest.
CREATE TRIGGER job_terminal BEFORE UPDATE ON job
WHEN OLD.state NOT IN ('queued', 'running') AND (
  NEW.seq IS NOT OLD.seq OR NEW.id IS NOT OLD.id OR NEW.lane IS NOT OLD.lane OR
  NEW.reason IS NOT OLD.reason OR NEW.workspace IS NOT OLD.workspace OR
  NEW.label IS NOT OLD.label OR NEW.idempotency_key IS NOT OLD.idempotency_key OR
  NEW.body_sha256 IS NOT OLD.body_sha256 OR NEW.parent_id IS NOT OLD.parent_id OR
  NEW.effort_requested IS NOT OLD.effort_requested OR NEW.deadline_ms IS NOT OLD.deadline_ms OR
  NEW.told IS NOT OLD.told OR NEW.cancel_requested IS NOT OLD.cancel_requested OR
  NEW.deaths IS NOT OLD.deaths OR NEW.attempt IS NOT OLD.attempt OR
  NEW.claims IS NOT OLD.claims OR NEW.instance IS NOT OLD.instance OR
  NEW.created_ms IS NOT OLD.created_ms OR NEW.started_ms IS NOT OLD.started_ms OR
  NEW.ended_ms IS NOT OLD.ended_ms OR NEW.run_ms IS NOT OLD.run_ms OR
  NEW.reasoning_chars IS NOT OLD.reasoning_chars OR NEW.answer_chars IS NOT OLD.answer_chars OR
  NEW.chunk_count IS NOT OLD.chunk_count OR NEW.text_bytes IS NOT OLD.text_bytes OR
  NEW.text_sha256 IS NOT OLD.text_sha256 OR
  (NEW.state = OLD.state AND (
     NEW.facts IS NOT OLD.facts OR NEW.note IS NOT OLD.note OR
     NEW.error_code IS NOT OLD.error_code OR NEW.error_message IS NOT OLD.error_message OR
     NEW.error_hint IS NOT OLD.error_hint OR NEW.summary IS NOT OLD.summary)))
BEGIN
  SELECT RAISE(ABORT, 'a terminal job never changes');
END;

CREATE TRIGGER job_live_stays BEFORE DELETE ON job WHEN OLD.state IN ('queued', 'running')
BEGIN
  SELECT RAISE(ABORT, 'a live job is not deleted');
END;

CREATE TRIGGER chunk_only_while_running BEFORE INSERT ON chunk
WHEN (SELECT state FROM job WHERE seq = NEW.job) IS NOT 'running'
BEGIN
  SELECT RAISE(ABORT, 'text is added to a running job only');
END;

CREATE TRIGGER chunk_never_changes BEFORE UPDATE ON chunk
BEGIN
  SELECT RAISE(ABORT, 'stored text never changes');
END;

CREATE TRIGGER chunk_stays BEFORE DELETE ON chunk
WHEN (SELECT state FROM job WHERE seq = OLD.job) NOT IN ('running', 'expired')
BEGIN
  SELECT RAISE(ABORT, 'the text of a job stays with it');
END;

CREATE TRIGGER state_change_terminal BEFORE UPDATE ON state_change
WHEN (SELECT state FROM job WHERE seq = OLD.job) <> 'running'
BEGIN
  SELECT RAISE(ABORT, 'the history of a job never changes');
END;
