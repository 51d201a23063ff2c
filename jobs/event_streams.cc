#include "jobs/event_streams.h"

#include <algorithm>

#include "engine/base/clock.h"

namespace ponder::jobs {
namespace {

json::object change_data(const std::string& id, const StateChange& change) {
  json::object data;
  data["job_id"] = id;
  data["state"] = to_string(change.state);
  data["reason"] =
      change.reason == Reason::none ? json::value() : json::value(to_string(change.reason));
  data["attempt"] = change.attempt;
  data["at"] = rfc3339(change.at_ms);
  data["note"] = change.note.empty() ? json::value() : json::value(change.note);
  // Text told beyond this byte was given up; what follows takes its place.
  if (change.cut) data["text_cut_to_bytes"] = change.text_bytes;
  return data;
}
}  // namespace

std::int64_t EventStreams::position_of(const std::vector<StateChange>& changes,
                                       std::int64_t text_bytes) {
  if (changes.empty()) return 0;
  const StateChange& last = changes.back();
  return last.position + std::max<std::int64_t>(0, text_bytes - last.text_bytes);
}

void EventStreams::add(CallId call, const std::string& id, std::int64_t after,
                       const std::vector<StateChange>& changes, Event event, Failed failed) {
  Stream stream{call, 0, 0, after, std::move(event), std::move(failed)};
  const std::int64_t position = after / kNumbersApart;
  const auto next =
      std::upper_bound(changes.begin(), changes.end(), position,
                       [](std::int64_t value, const StateChange& c) { return value < c.position; });
  stream.next = static_cast<std::size_t>(next - changes.begin());
  // Between two changes positions count text. They may count further than the next change's text:
  // that was told by a daemon which died before it was stored, and comes again.
  if (stream.next > 0) {
    const StateChange& last = changes[stream.next - 1];
    stream.offset = last.text_bytes + (position - last.position);
  }
  streams_[id].push_back(std::move(stream));
}

void EventStreams::send(Stream& stream, JobEvent event) {
  stream.told = event.position;
  stream.event(std::move(event));
}

bool EventStreams::deliver(Stream& stream, const std::string& id,
                           const std::vector<StateChange>& changes, const JobText& text) {
  for (;;) {
    const bool has_next = stream.next < changes.size();
    const std::int64_t limit = has_next ? changes[stream.next].text_bytes : text.size();
    if (stream.offset < limit && stream.next > 0) {
      const StateChange& last = changes[stream.next - 1];
      text.pieces(stream.offset, limit,
                  [&](Channel channel, std::string_view piece, std::int64_t end) {
                    if (!calls_.is_open(stream.call)) return;
                    JobEvent event;
                    event.position = (last.position + (end - last.text_bytes)) * kNumbersApart;
                    event.type = channel == Channel::reasoning ? "reasoning" : "answer";
                    event.data["text"] = piece;
                    send(stream, std::move(event));
                  });
      stream.offset = limit;
    }
    if (!calls_.is_open(stream.call)) return false;
    if (!has_next) return true;
    const StateChange& change = changes[stream.next++];
    stream.offset = change.cut ? change.text_bytes : std::max(stream.offset, change.text_bytes);
    send(stream, {change.position * kNumbersApart, "state", change_data(id, change)});
  }
}

void EventStreams::tell(const std::string& id, const std::vector<StateChange>& changes,
                        const JobText& text) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  auto& streams = found->second;
  std::erase_if(streams, [&](Stream& stream) { return !deliver(stream, id, changes, text); });
  if (streams.empty()) streams_.erase(found);
}

void EventStreams::tell(CallId call, const std::string& id, const std::vector<StateChange>& changes,
                        const JobText& text) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  std::erase_if(found->second, [&](Stream& stream) {
    return stream.call == call && !deliver(stream, id, changes, text);
  });
  if (found->second.empty()) streams_.erase(found);
}

void EventStreams::progress(const std::string& id, const json::object& data) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  for (Stream& stream : found->second)
    if (calls_.is_open(stream.call) && (stream.told + 1) % kNumbersApart != 0)
      send(stream, {stream.told + 1, "progress", data});
}

void EventStreams::end(const std::string& id, std::int64_t position,
                       const std::function<json::object()>& envelope) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const std::vector<Stream> streams = std::move(found->second);
  streams_.erase(found);
  const json::object data = envelope();
  for (const Stream& stream : streams) {
    if (!calls_.close(stream.call)) continue;
    // The history of an expired job is gone: its end still comes after what was told.
    const std::int64_t number = std::max((position + 1) * kNumbersApart, stream.told + 1);
    stream.event({number, "end", data});
  }
}

void EventStreams::drop_closed(const std::string& id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  std::erase_if(found->second, [this](const Stream& s) { return !calls_.is_open(s.call); });
  if (found->second.empty()) streams_.erase(found);
}

void EventStreams::fail(const std::string& id, const Error& error) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const std::vector<Stream> streams = std::move(found->second);
  streams_.erase(found);
  for (const Stream& stream : streams)
    if (calls_.close(stream.call)) stream.failed(error);
}

void EventStreams::fail_all(const Error& error) {
  while (!streams_.empty())
    fail(streams_.begin()->first, error);
}

}  // namespace ponder::jobs
