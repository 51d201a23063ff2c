#include "tests/unit/mcp/fake_daemon.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "engine/base/utf8.h"
#include "mcp/tools/job_calls.h"

namespace ponder::mcp::testing {
namespace {
using namespace std::chrono_literals;

std::string query_value(const std::string& target, const std::string& key) {
  for (const char* lead : {"?", "&"}) {
    const std::size_t at = target.find(lead + key + "=");
    if (at == std::string::npos) continue;
    const std::size_t from = at + key.size() + 2;
    return target.substr(from, target.find('&', from) - from);
  }
  return {};
}

client::Response reply(json::value body) {
  return {200, std::move(body), -1};
}
}  // namespace

std::string id_of(int n) {
  return fmt::format("01k{:023d}", n);
}

json::object envelope(const std::string& id, std::string_view state) {
  json::object e;
  for (const char* key : {"job_id",
                          "state",
                          "reason",
                          "phase",
                          "waiting_for",
                          "label",
                          "workspace",
                          "created_at",
                          "started_at",
                          "ended_at",
                          "queue_s",
                          "run_s",
                          "effort_requested",
                          "effort",
                          "effort_by",
                          "tokens",
                          "cache",
                          "ttft_s",
                          "prefill_tokens_per_s",
                          "tokens_per_s",
                          "drafted",
                          "accepted",
                          "answer",
                          "reasoning_chars",
                          "total_chars",
                          "next_offset",
                          "truncated",
                          "forced_answer",
                          "position",
                          "eta_s",
                          "energy_j",
                          "model",
                          "model_class",
                          "device",
                          "degraded",
                          "build",
                          "parent_id",
                          "attempt",
                          "pinned",
                          "note",
                          "error",
                          "next"})
    e[key] = nullptr;
  e["job_id"] = id;
  e["state"] = state;
  e["effort"] = "medium";
  e["created_at"] = "2026-11-29T20:00:00.000Z";
  e["tokens"] = json::object{
      {"prompt", 12}, {"cached", 0}, {"reasoning", 30}, {"answer", 7}, {"reserved", 100}};
  e["run_s"] = 4.25;
  e["reasoning_chars"] = 90;
  e["model"] = "stub";
  e["model_class"] = "user";
  if (state == "running") e["phase"] = "thinking";
  return e;
}

void FakeDaemon::put(const FakeJob& job) {
  const std::lock_guard lock(mutex_);
  jobs_[std::string(job.envelope.at("job_id").as_string())] = job;
}

void FakeDaemon::wait_for_held(int count) {
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(changed_.wait_for(lock, 10s, [&] { return held_ >= count; }));
}

std::vector<Request> FakeDaemon::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

Request FakeDaemon::last(std::string_view method, std::string_view target_prefix) const {
  const auto all = requests();
  for (auto r = all.rbegin(); r != all.rend(); ++r)
    if (r->method == method && r->target.starts_with(target_prefix)) return *r;
  ADD_FAILURE() << "no request " << method << " " << target_prefix;
  return {};
}

Result<client::Response> FakeDaemon::call(std::string_view method, const std::string& target,
                                          const json::value* body, int,
                                          client::Interrupt* interrupt) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back({std::string(method), target, body ? *body : json::value()});
    if (!failures.empty()) {
      const Error error = failures.front();
      failures.erase(failures.begin());
      return fail(error);
    }
    if (lost_waits > 0 && !query_value(target, "wait_s").empty()) {
      --lost_waits;
      return fail(ErrorCode::unreachable, "the connection broke");
    }
  }
  if (!up) return fail(ErrorCode::unreachable, "no daemon is running", "ponder start");
  return answer(method, target, interrupt);
}

Result<client::Response> FakeDaemon::answer(std::string_view method, const std::string& target,
                                            client::Interrupt* interrupt) {
  const std::string jobs = "/v1/jobs/";
  if (method == "POST" && target == "/v1/jobs") {
    put(submitted);
    return reply(submitted.envelope);
  }
  if (method == "POST" && target == "/v1/chat/completions") return reply(json::object{});
  if (method == "GET" && target.starts_with("/v1/jobs?")) {
    const std::lock_guard lock(mutex_);
    json::array list;
    for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job)
      list.emplace_back(job->second.envelope);
    return reply(json::object{{"jobs", list}, {"next_before", nullptr}});
  }
  if (!target.starts_with(jobs)) return fail(ErrorCode::not_found, "no such path");
  const std::string id = target.substr(jobs.size(), 26);
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.count(id) == 0)
      return fail(Error{ErrorCode::job_unknown, fmt::format("there is no job {}", id)});
    if (method == "POST" && target.ends_with("/cancel")) {
      jobs_[id].envelope["state"] = "cancelled";
      return reply(jobs_[id].envelope);
    }
  }
  if (target.find("/result") != std::string::npos) return get_result(id, target);
  auto looked = get_job(id, std::atof(query_value(target, "wait_s").c_str()),
                        query_value(target, "seen"), interrupt);
  after_look();
  return looked;
}

Result<client::Response> FakeDaemon::get_job(const std::string& id, double wait_s,
                                             const std::string& seen,
                                             client::Interrupt* interrupt) {
  std::unique_lock lock(mutex_);
  const std::string phase = text_of(jobs_[id].envelope, "phase");
  const std::string now = text_of(jobs_[id].envelope, "state") + (phase.empty() ? "" : ":" + phase);
  if (wait_s <= 0 || (!seen.empty() && seen != now)) return reply(jobs_[id].envelope);
  if (waits_hold) {
    ++held_;
    changed_.notify_all();
    lock.unlock();
    pollfd fds[2] = {{released_.wait_fd(), POLLIN, 0}, {interrupt->wait_fd(), POLLIN, 0}};
    ::poll(fds, 2, 30'000);
    if (interrupt->triggered()) return fail(ErrorCode::cancelled, "interrupted");
    lock.lock();
  } else if (!moves.empty()) {
    clock_.advance(100);
    jobs_[id] = moves.front();
    moves.erase(moves.begin());
  } else {
    clock_.advance(static_cast<std::int64_t>(wait_s * 1000) + 1);
  }
  return reply(jobs_[id].envelope);
}

Result<client::Response> FakeDaemon::get_result(const std::string& id, const std::string& target) {
  const std::lock_guard lock(mutex_);
  const FakeJob& job = jobs_[id];
  const std::string part = query_value(target, "part");
  if (part == "answer" && job.envelope.at("state").as_string() != "completed")
    return fail(ErrorCode::not_completed, "the job did not complete");
  const std::string& text = part == "reasoning" ? job.reasoning
                            : part == "request" ? job.request
                                                : job.answer;
  const std::int64_t total = count_code_points(text);
  const std::int64_t offset = std::atoll(query_value(target, "offset").c_str());
  const std::string limit = query_value(target, "limit");
  const std::int64_t end =
      limit.empty() ? total : std::min<std::int64_t>(total, offset + std::atoll(limit.c_str()));
  const std::size_t from = byte_offset_of(text, offset);
  const json::value next = end < total ? json::value(end) : json::value(nullptr);
  return reply(json::object{{"job_id", id},
                            {"state", job.envelope.at("state")},
                            {"part", part},
                            {"offset", offset},
                            {"next_offset", next},
                            {"total_chars", total},
                            {"truncated", end < total},
                            {"text", text.substr(from, byte_offset_of(text, end) - from)}});
}

Result<json::object> FakeDaemon::health(int, client::Interrupt*) {
  if (!up) return fail(ErrorCode::unreachable, "no daemon is running", "ponder start");
  return health_document;
}

void RecordingSink::send(const json::value& message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(message);
  changed_.notify_all();
}

std::vector<json::value> RecordingSink::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}

json::value RecordingSink::answer_to(const json::value& id) {
  std::unique_lock lock(mutex_);
  json::value found;
  changed_.wait_for(lock, 10s, [&] {
    for (const json::value& m : messages_)
      if (m.is_object() && m.as_object().contains("id") && m.at("id") == id) found = m;
    return !found.is_null();
  });
  return found;
}

void FakeProgress::report(std::string_view message) {
  const std::lock_guard lock(mutex_);
  reports.emplace_back(message);
  changed_.notify_all();
}

void FakeProgress::wait_for_report() {
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(changed_.wait_for(lock, 10s, [&] { return !reports.empty(); }));
}

}  // namespace ponder::mcp::testing
