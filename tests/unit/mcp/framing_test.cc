// The lines on stdin and stdout.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/unique_fd.h"
#include "mcp/protocol/line_reader.h"
#include "mcp/protocol/line_writer.h"

namespace ponder::mcp {
namespace {

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
};

/// What a reader with a limit of `max` makes of `bytes`, written in pieces of `piece`.
std::vector<std::string> lines_of(const std::string& bytes, std::size_t max, std::size_t piece) {
  Pipe pipe;
  std::thread writer([&] {
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      EXPECT_GT(::write(pipe.write.get(), bytes.data() + at, std::min(piece, bytes.size() - at)),
                0);
    pipe.write.reset();
  });
  LineReader reader(pipe.read.get(), max);
  std::vector<std::string> lines;
  for (;;) {
    const LineReader::Line line = reader.next();
    if (line.kind == LineReader::Kind::end) break;
    lines.push_back(line.kind == LineReader::Kind::too_long ? "(too long)" : line.text);
  }
  writer.join();
  return lines;
}

TEST(LineReader, SplitsAtNewlinesWhateverTheBlocks) {
  const std::string bytes = "one\ntwo\r\n\n \t\r\nthree\xC3\xA9\nlast without newline";
  const std::vector<std::string> want{"one", "two", "three\xC3\xA9", "last without newline"};
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece)
    EXPECT_EQ(lines_of(bytes, 100, piece), want) << piece;
}

TEST(LineReader, SkipsOnlyTheOverLongLine) {
  const std::string bytes = "a\n" + std::string(11, 'x') + "\n" + std::string(10, 'y') + "\r\nb\n";
  const std::vector<std::string> want{"a", "(too long)", std::string(10, 'y'), "b"};
  for (std::size_t piece : {1u, 3u, 64u})
    EXPECT_EQ(lines_of(bytes, 10, piece), want) << piece;
}

TEST(LineReader, ReportsAnEndlessLineOnceAndEndsAtEof) {
  const std::string bytes(300'000, 'x');
  EXPECT_EQ(lines_of(bytes, 1000, 7000), std::vector<std::string>{"(too long)"});
}

std::string read_all(int fd) {
  std::string out;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(n));
  return out;
}

TEST(LineWriter, WritesEveryMessageWholeFromManyThreads) {
  for (const bool is_socket : {false, true}) {
    int ends[2];
    if (is_socket) {
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    } else {
      ASSERT_EQ(::pipe(ends), 0);
    }
    const UniqueFd read(ends[0]);
    UniqueFd write(ends[1]);
    LineWriter writer(
        write.get(), [] { return false; }, [] { FAIL() << "broken"; });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&writer, t] {
        for (int i = 0; i < 25; ++i)
          writer.send(json::object{{"t", t}, {"text", std::string(20'000, char('a' + t))}});
      });
    std::string got;
    std::thread reader([&] { got = read_all(read.get()); });
    for (std::thread& thread : threads)
      thread.join();
    write.reset();
    reader.join();
    int lines = 0;
    for (std::size_t at = 0; at < got.size(); ++lines) {
      const std::size_t end = got.find('\n', at);
      ASSERT_NE(end, std::string::npos);
      const auto message = parse_json_object(got.substr(at, end - at));
      ASSERT_TRUE(message) << message.error().message;
      const char letter = char('a' + message->at("t").as_int64());
      EXPECT_EQ(std::string(message->at("text").as_string()), std::string(20'000, letter));
      at = end + 1;
    }
    EXPECT_EQ(lines, 100);
  }
}

TEST(LineWriter, GivesUpWhenThePeerTakesNothingAndIsGone) {
  Pipe pipe;
  int broken = 0;
  LineWriter writer(
      pipe.write.get(), [] { return true; }, [&] { ++broken; });
  writer.send(json::value(std::string(1 << 20, 'x')));  // more than a pipe holds
  writer.send(json::value("dropped"));
  EXPECT_EQ(broken, 1);
}

TEST(LineWriter, KeepsLineSeparatorsOutOfTheLine) {
  const std::string line =
      to_line(json::value("a\n\xE2\x80\xA8"
                          "b\xE2\x80\xA9\x01"));
  EXPECT_EQ(line, R"("a\n\u2028b\u2029\u0001")");
  EXPECT_EQ(parse_json(line).value(), json::value("a\n\xE2\x80\xA8"
                                                  "b\xE2\x80\xA9\x01"));
}

}  // namespace
}  // namespace ponder::mcp
