#pragma once
// Every SQL statement of the queue, by name. They are prepared once; a test explains each and
// holds the hot ones against their indexes.
#include <array>
#include <string_view>
#include <utility>

namespace ponder::jobs {

#define PONDER_JOB_COLUMNS                                                                    \
  "seq, id, lane, state, reason, workspace, label, idempotency_key, body_sha256, parent_id, " \
  "effort_requested, deadline_ms, told, cancel_requested, pinned, read_ms, deaths, attempt, " \
  "claims, instance, created_ms, started_ms, ended_ms, run_ms, facts, note, error_code, "     \
  "error_message, error_hint, reasoning_chars, answer_chars, chunk_count, text_bytes, "       \
  "text_sha256, summary "
#define PONDER_SEAL "ponder_crc32(" PONDER_JOB_COLUMNS ", request_crc32)"
// A write renews the seal (statement `seal`), and so must not touch a row that is damaged: it would
// then pass for whole.
#define PONDER_HOLDS "seal IS " PONDER_SEAL
#define PONDER_CHANGE_SEAL(text_bytes) \
  "ponder_crc32(job, seq, position, " text_bytes ", cut, state, reason, attempt, at_ms, note)"
#define PONDER_SELECT_JOB "SELECT " PONDER_JOB_COLUMNS ", " PONDER_HOLDS " FROM job "
#define PONDER_FENCE \
  "WHERE seq = ?1 AND state = 'running' AND claims = ?2 AND instance = ?3 AND " PONDER_HOLDS
#define PONDER_LIVE "state IN ('queued', 'running')"
#define PONDER_KEPT "state IN ('completed', 'incomplete', 'failed', 'cancelled', 'interrupted')"

enum class Sql {
  insert_job,
  insert_request,
  request_seal,
  seal,
  holds,
  insert_change,
  last_change,
  clamp_changes,
  claim,
  progress,
  insert_chunk,
  delete_chunks,
  delete_chunks_from,
  requeue,
  end_running,
  end_queued,
  request_cancel,
  mark_told,
  mark_read,
  set_pinned,
  find,
  find_key,
  find_twin,
  list,
  list_workspace,
  list_state,
  live,
  request,
  changes,
  chunks,
  history,
  last_id,
  orphans,
  after,
  read_beyond,
  unread_beyond,
  unread_before,
  expire,
  delete_request,
  delete_changes,
  tombstones,
  remove,
  probe,
  vacuum,
  count_,
};

inline constexpr std::array<std::pair<std::string_view, std::string_view>,
                            static_cast<std::size_t>(Sql::count_)>
    kStatements{{
        {"insert_job",
         "INSERT INTO job (id, lane, state, workspace, label, idempotency_key, body_sha256, "
         "parent_id, effort_requested, deadline_ms, pinned, created_ms, facts, note, "
         "reasoning_chars, "
         "answer_chars) "
         "VALUES (?1, ?2, 'queued', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) "
         "RETURNING seq"},
        {"insert_request", "INSERT INTO request (job, body) VALUES (?1, ?2)"},
        {"request_seal", "UPDATE job SET request_crc32 = ponder_crc32(?1, ?2) WHERE seq = ?1"},
        {"seal", "UPDATE job SET seal = " PONDER_SEAL " WHERE seq = ?1"},
        {"holds", "SELECT " PONDER_HOLDS " FROM job WHERE seq = ?1"},
        {"insert_change",
         "INSERT INTO state_change (job, seq, position, text_bytes, cut, state, reason, attempt, "
         "at_ms, note, crc32) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
         "ponder_crc32(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10))"},
        {"last_change",
         "SELECT seq, position, text_bytes FROM state_change WHERE job = ?1 "
         "ORDER BY seq DESC LIMIT 1"},
        {"clamp_changes", "UPDATE state_change SET text_bytes = ?2, crc32 = " PONDER_CHANGE_SEAL(
                              "?2") " WHERE job = ?1 AND text_bytes > ?2 AND crc32 "
                                    "IS " PONDER_CHANGE_SEAL("text_bytes")},
        {"claim",
         "UPDATE job SET state = 'running', instance = ?2, claims = claims + 1, "
         "attempt = deaths + 1, started_ms = coalesce(started_ms, ?3) "
         "WHERE id = ?1 AND state = 'queued' AND " PONDER_HOLDS " RETURNING seq"},
        {"progress", "UPDATE job SET run_ms = ?4, facts = ?5 " PONDER_FENCE},
        {"insert_chunk",
         "INSERT INTO chunk (job, seq, attempt, channel, text, token_count, tokens, crc32) "
         "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"},
        {"delete_chunks", "DELETE FROM chunk WHERE job = ?1"},
        {"delete_chunks_from", "DELETE FROM chunk WHERE job = ?1 AND seq >= ?2"},
        {"requeue",
         "UPDATE job SET state = 'queued', instance = NULL, deaths = deaths + ?4, "
         "run_ms = ?5, facts = ?6, note = ?7, reasoning_chars = ?8, "
         "answer_chars = ?9 " PONDER_FENCE},
        {"end_running",
         "UPDATE job SET state = ?4, reason = ?5, instance = NULL, deaths = deaths + ?6, "
         "ended_ms = ?7, run_ms = ?8, facts = ?9, note = ?10, error_code = ?11, "
         "error_message = ?12, error_hint = ?13, reasoning_chars = ?14, answer_chars = ?15, "
         "chunk_count = ?16, text_bytes = ?17, text_sha256 = ?18 " PONDER_FENCE},
        {"end_queued",
         "UPDATE job SET state = ?2, reason = ?3, ended_ms = ?4, note = ?5, error_code = ?6, "
         "error_message = ?7, error_hint = ?8, chunk_count = ?9, text_bytes = ?10, "
         "text_sha256 = ?11 WHERE seq = ?1 AND state = 'queued' AND " PONDER_HOLDS},
        {"request_cancel",
         "UPDATE job SET cancel_requested = 1 WHERE seq = ?1 AND state = 'running' "
         "AND " PONDER_HOLDS},
        {"mark_told",
         "UPDATE job SET told = 1 WHERE seq = ?1 AND " PONDER_LIVE " AND " PONDER_HOLDS},
        {"mark_read",
         "UPDATE job SET read_ms = ?2 WHERE seq = ?1 AND read_ms IS NULL AND " PONDER_KEPT
         " AND " PONDER_HOLDS},
        {"set_pinned",
         "UPDATE job SET pinned = ?2 WHERE seq = ?1 AND state <> 'expired' "
         "AND " PONDER_HOLDS},
        {"find", PONDER_SELECT_JOB "WHERE id = ?1"},
        {"find_key", PONDER_SELECT_JOB "WHERE idempotency_key = ?1"},
        {"find_twin", PONDER_SELECT_JOB "WHERE workspace = ?1 AND body_sha256 = ?2 AND " PONDER_LIVE
                                        " ORDER BY seq LIMIT 1"},
        {"list", PONDER_SELECT_JOB "WHERE id < ?1 AND state <> 'expired' "
                                   "AND (?3 = '' OR label = ?3) ORDER BY id DESC LIMIT ?2"},
        {"list_workspace",
         PONDER_SELECT_JOB "WHERE id < ?1 AND workspace = ?4 AND (?3 = '' OR label = ?3) "
                           "AND state = coalesce(?5, state) "
                           "AND (?5 IS NOT NULL OR state <> 'expired') "
                           "ORDER BY id DESC LIMIT ?2"},
        {"list_state", PONDER_SELECT_JOB "WHERE id < ?1 AND state = ?4 "
                                         "AND (?3 = '' OR label = ?3) ORDER BY id DESC LIMIT ?2"},
        {"live", PONDER_SELECT_JOB "INDEXED BY job_live WHERE " PONDER_LIVE " ORDER BY seq"},
        {"request",
         "SELECT body, (SELECT request_crc32 FROM job WHERE seq = ?1) IS ponder_crc32(job, body) "
         "FROM request WHERE job = ?1"},
        {"changes",
         "SELECT seq, position, text_bytes, cut, state, reason, attempt, at_ms, note, "
         "crc32 IS " PONDER_CHANGE_SEAL(
             "text_bytes") " FROM state_change WHERE job = ?1 ORDER BY seq"},
        {"chunks",
         "SELECT seq, attempt, channel, text, token_count, tokens, crc32 FROM chunk "
         "WHERE job = ?1 ORDER BY seq"},
        {"history",
         "SELECT lane, effort_requested, run_ms FROM job WHERE state = 'completed' "
         "ORDER BY ended_ms DESC LIMIT ?1"},
        {"last_id", "SELECT max(id) FROM job"},
        {"orphans", PONDER_SELECT_JOB "INDEXED BY job_live WHERE " PONDER_LIVE
                                      " AND state = 'running' AND instance <> ?1 ORDER BY seq"},
        {"after", PONDER_SELECT_JOB "WHERE seq > ?1 ORDER BY seq LIMIT 1"},
        {"read_beyond", PONDER_SELECT_JOB
         "INDEXED BY job_read WHERE pinned = 0 AND read_ms IS NOT NULL AND " PONDER_KEPT
         " ORDER BY ended_ms DESC LIMIT ?2 OFFSET ?1"},
        {"unread_beyond", PONDER_SELECT_JOB
         "INDEXED BY job_unread WHERE pinned = 0 AND read_ms IS NULL AND " PONDER_KEPT
         " ORDER BY ended_ms DESC LIMIT ?2 OFFSET ?1"},
        {"unread_before", PONDER_SELECT_JOB
         "INDEXED BY job_unread WHERE pinned = 0 AND read_ms IS NULL AND " PONDER_KEPT
         " AND ended_ms < ?1 ORDER BY ended_ms LIMIT ?2"},
        {"expire",
         "UPDATE job SET state = 'expired', summary = ?2, facts = '{}', note = '', "
         "error_code = '', error_message = '', error_hint = '' WHERE seq = ?1 AND " PONDER_KEPT
         " AND " PONDER_HOLDS},
        {"delete_request", "DELETE FROM request WHERE job = ?1"},
        {"delete_changes", "DELETE FROM state_change WHERE job = ?1"},
        {"tombstones",
         "DELETE FROM job WHERE seq IN (SELECT seq FROM job WHERE state = 'expired' "
         "ORDER BY ended_ms DESC LIMIT ?2 OFFSET ?1)"},
        {"remove", "DELETE FROM job WHERE seq = ?1"},
        {"probe", "UPDATE job SET note = note WHERE seq = -1"},
        {"vacuum", "PRAGMA incremental_vacuum(256)"},
    }};

}  // namespace ponder::jobs
