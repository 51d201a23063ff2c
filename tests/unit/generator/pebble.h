#pragma once
// The bundled model, its vocabulary, and its questions with known answers.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "engine/run/load.h"
#include "tests/unit/generator/recording_sink.h"

namespace ponder::test {

inline std::filesystem::path pebble_file() {
  return PONDER_SOURCE_DIR "/models/pebble/pebble-q8_0.gguf";
}

inline const run::Vocabulary& pebble_vocabulary() {
  static const run::Vocabulary vocabulary =
      run::load_vocabulary(*artifact::Gguf::open(pebble_file()).value()).value();
  return vocabulary;
}

inline run::LoadedModel load_pebble(std::int64_t n_ctx = 4096) {
  run::EngineOptions options;
  options.model_path = pebble_file();
  options.load.n_ctx = n_ctx;
  return run::load_model(options).value();
}

struct Question {
  std::string task;
  GenerationRequest request;  ///< greedy, effort medium
  std::string answer;         ///< or, for a tool call, empty
  json::object call;
};

/// The first question of each of these tasks, in the order of the file.
inline std::vector<Question> questions(const std::vector<std::string>& tasks) {
  std::vector<Question> out;
  std::ifstream in(PONDER_SOURCE_DIR "/models/pebble/eval.jsonl");
  std::vector<std::string> left = tasks;
  for (std::string line; std::getline(in, line) && !left.empty();) {
    const json::object o = parse_json_object(line).value();
    const auto it = std::find(left.begin(), left.end(), std::string(o.at("task").as_string()));
    if (it == left.end()) continue;
    Question q;
    q.task = *it;
    left.erase(it);
    q.request.chat = parse_chat_request(o).value();
    q.request.sampling.temperature = 0;
    if (o.contains("answer")) q.answer = std::string(o.at("answer").as_string());
    if (o.contains("call")) q.call = o.at("call").as_object();
    out.push_back(std::move(q));
  }
  return out;
}

}  // namespace ponder::test
