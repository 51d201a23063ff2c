#include <gtest/gtest.h>

#include "jobs/job.h"
#include "jobs/prompt.h"
#include "jobs/submission.h"

namespace ponder::jobs {
namespace {

json::object body(const char* text) {
  auto parsed = parse_json_object(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(json::object{});
}
std::string refused(const json::object& object) {
  auto spec = parse_job_spec(object);
  return spec ? "" : spec.error().param;
}

TEST(JobSpec, ReadsEveryArgumentOfSubmit) {
  auto spec = parse_job_spec(body(R"({"kind":"ask","task":"t","context":"c",
    "files":[{"name":"a.txt","text":"A"}],"system":"s","effort":"high","temperature":0.5,
    "max_reasoning_tokens":10,"max_answer_tokens":20,"deadline_s":1.5,"on_limit":"stop",
    "schema":{"type":"object"},"label":"l","workspace":"/w","idempotency_key":"k",
    "continue_from":"","mode":"follow_up","force_new":true,"pin":true,"unknown":[1]})"));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->kind, Lane::ask);
  EXPECT_EQ(spec->files.at(0).text, "A");
  EXPECT_EQ(to_string(*spec->effort), "medium");
  EXPECT_EQ(spec->budgets.max_answer_tokens, 20);
  EXPECT_EQ(spec->deadline_s, 1.5);
  EXPECT_TRUE(spec->force_new && spec->pin && spec->schema);
}

TEST(JobSpec, NamesTheFieldAtFault) {
  EXPECT_EQ(refused(body("{}")), "task");
  EXPECT_EQ(refused(body(R"({"task":"t","messages":[{"role":"user","content":"x"}]})")), "task");
  EXPECT_EQ(refused(body(R"({"task":"t","kind":"later"})")), "kind");
  EXPECT_EQ(refused(body(R"({"task":"t","effort":"huge"})")), "effort");
  EXPECT_EQ(refused(body(R"({"task":"t","deadline_s":-1})")), "deadline_s");
  EXPECT_EQ(refused(body(R"({"task":"t","files":{}})")), "files");
  EXPECT_EQ(refused(body(R"({"task":"t","label":"a\nb"})")), "label");
  EXPECT_EQ(refused(body(R"({"task":"t","mode":"again"})")), "mode");
  EXPECT_EQ(refused({{"task", "t"}, {"label", std::string(201, 'x')}}), "label");
  EXPECT_EQ(refused({{"task", "t"}, {"workspace", std::string(4097, 'x')}}), "workspace");
  EXPECT_EQ(refused({{"task", "t"}, {"idempotency_key", std::string(201, 'x')}}),
            "idempotency_key");
  json::array files(65, json::object{{"name", "a"}, {"text", ""}});
  EXPECT_EQ(refused({{"task", "t"}, {"files", files}}), "files");
  EXPECT_EQ(refused({{"task", std::string((16u << 20) + 1, 'x')}}), "task");
}

TEST(JobSpec, CountsLabelsInCharacters) {
  std::string label;
  for (int i = 0; i < 200; ++i)
    label += "é";
  EXPECT_EQ(refused({{"task", "t"}, {"label", label}}), "");
}

TEST(Prompt, TheTaskComesLastBehindContextAndFiles) {
  JobSpec spec;
  spec.task = "what is it?";
  spec.context = "CTX";
  spec.files = {{"a.txt", "AAA"}};
  spec.system = "be kind";
  auto messages = build_messages(spec, nullptr);
  ASSERT_TRUE(messages);
  ASSERT_EQ(messages->size(), 2u);
  EXPECT_EQ(messages->at(0).role, "system");
  EXPECT_EQ(messages->at(1).content,
            "<context>\nCTX\n</context>\n\n<file name=\"a.txt\">\nAAA\n</file>\n\nwhat is it?");
}

TEST(Prompt, AFollowUpGoesOnWithTheWholeConversation) {
  JobSpec spec;
  spec.task = "and then?";
  ParentTurn parent{{Message{"system", "s"}, Message{"user", "q"}}, "thoughts", "a"};
  auto messages = build_messages(spec, &parent);
  ASSERT_TRUE(messages);
  ASSERT_EQ(messages->size(), 4u);
  EXPECT_EQ(messages->at(2).content, "a");
  EXPECT_FALSE(messages->at(2).reasoning_content);
  EXPECT_EQ(messages->at(3).content, "and then?");

  parent.answer.clear();
  messages = build_messages(spec, &parent);
  EXPECT_EQ(messages->at(2).reasoning_content, "thoughts");

  spec.system = "another";
  EXPECT_EQ(build_messages(spec, &parent).error().param, "system");
  spec.system = "s";
  EXPECT_TRUE(build_messages(spec, &parent));
}

TEST(Prompt, ThePreviewIsOneLineOfWhatWasAsked) {
  JobSpec spec;
  spec.task = "How many\n" + std::string(200, 'x');
  spec.context = "CTX";
  const auto preview = [&] { return preview_of(spec, *build_messages(spec, nullptr)); };
  EXPECT_EQ(preview(), "How many " + std::string(91, 'x'));
  spec.task = "<context>\n" + std::string(300, 'c') + "\n</context>\n\nWhy so?";
  EXPECT_EQ(preview(), std::string(80, 'c') + " </context>  Why so?");
  std::string wide;
  for (int i = 0; i < 150; ++i)
    wide += "ä";
  spec.task = wide + "é";
  EXPECT_EQ(preview(), wide.substr(0, 200));
  spec.task = "<file " + wide;
  EXPECT_EQ(preview(), wide.substr(0, 200));

  spec = {};
  spec.messages = {{"user", "first"}, {"assistant", "a"}, {"user", "second"}, {"assistant", "b"}};
  EXPECT_EQ(preview(), "second");
  spec.messages = {{"system", "s"}};
  EXPECT_EQ(preview(), "");
}

TEST(Submission, DefaultsDependOnTheKind) {
  JobSpec spec;
  spec.task = "t";
  auto batch = prepare(spec, {});
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->effort, "xhigh");
  EXPECT_EQ(batch->request.generation.budgets.max_reasoning_tokens, 131072);
  EXPECT_EQ(batch->request.generation.budgets.max_answer_tokens, 8192);
  EXPECT_TRUE(batch->request.generation.budgets.defaulted);
  EXPECT_TRUE(batch->request.generation.sampling.seed);

  spec.kind = Lane::ask;
  auto ask = prepare(spec, {});
  EXPECT_EQ(ask->effort, "medium");
  EXPECT_FALSE(ask->request.generation.budgets.max_reasoning_tokens);

  spec.kind = Lane::batch;
  spec.budgets.max_answer_tokens = 5;
  EXPECT_FALSE(prepare(spec, {})->request.generation.budgets.defaulted);

  const ParentJob parent{"x", "low", {{Message{"user", "q"}}, "", "a"}};
  EXPECT_EQ(prepare(spec, parent)->effort, "low");
  spec.effort = Effort{Effort::Word::none};
  EXPECT_EQ(prepare(spec, parent)->effort, "none");
}

TEST(Submission, WhatIsStoredComesBack) {
  JobSpec spec;
  spec.task = "t \xF0\x9F\x99\x82";
  spec.sampling.seed = 7;
  spec.schema = json::object{{"type", "object"}};
  auto made = prepare(spec, {});
  ASSERT_TRUE(made);
  auto back = decode_request(encode_request(made->request));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->generation.sampling.seed, 7u);
  EXPECT_EQ(back->generation.chat.messages.at(0).content,
            made->request.generation.chat.messages.at(0).content);
  EXPECT_EQ(back->schema, made->request.schema);
  EXPECT_EQ(back->generation.schema, made->request.generation.schema);
  EXPECT_FALSE(decode_request("{}"));
}

TEST(Submission, ASchemaThatTakesEverythingStillAsksForJson) {
  JobSpec spec;
  spec.task = "t";
  EXPECT_TRUE(prepare(spec, {})->request.generation.schema.empty());
  for (const char* schema : {"{}", R"({"title": "anything"})"}) {
    spec.schema = parse_json(schema).value();
    const auto made = prepare(spec, {});
    ASSERT_TRUE(made);
    EXPECT_FALSE(made->request.generation.schema.empty());
    EXPECT_EQ(decode_request(encode_request(made->request))->generation.schema,
              made->request.generation.schema);
  }
}

TEST(Submission, TheHashIsOfTheMeaningOfTheBody) {
  const auto hash = [](const char* text) { return body_hash(*parse_job_spec(body(text))); };
  EXPECT_EQ(hash(R"({"task":"t","label":"l","schema":{"a":1,"b":2}})"),
            hash(R"({"schema":{"b":2,"a":1},"label":"l","task":"t","kind":"batch"})"));
  EXPECT_EQ(hash(R"({"task":"t"})"), hash(R"({"task":"t","idempotency_key":"k"})"));
  EXPECT_NE(hash(R"({"task":"t"})"), hash(R"({"task":"u"})"));
  EXPECT_NE(hash(R"({"task":"t"})"), hash(R"({"task":"t","kind":"ask"})"));
  EXPECT_NE(hash(R"({"task":"t"})"), hash(R"({"task":"t","context":"t"})"));
}

TEST(Submission, WhatIsCarriedComesBack) {
  JobSpec spec;
  spec.task = "t";
  auto made = prepare(spec, {});
  ASSERT_TRUE(made);
  made->request.carried = {7, 2, 3, 4};
  made->request.answer_now = true;
  const auto back = decode_request(encode_request(made->request));
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->answer_now);
  EXPECT_EQ(back->carried.bytes, 7);
  EXPECT_EQ(back->carried.chunks, 2);
  EXPECT_EQ(back->carried.tokens(), 7);
  EXPECT_FALSE(decode_request(encode_request(prepare(spec, {})->request))->answer_now);
}

TEST(JobSpec, GoingOnNeedsAJobAndNoTask) {
  const auto param = [](const char* text) {
    const auto spec = parse_job_spec(body(text));
    return spec ? std::string("ok") : spec.error().param;
  };
  EXPECT_EQ(param(R"({"continue_from":"x","mode":"resume"})"), "ok");
  EXPECT_EQ(param(R"({"continue_from":"x","mode":"answer_now","task":"t"})"), "ok");
  EXPECT_EQ(param(R"({"continue_from":"x","mode":"follow_up"})"), "task");
  EXPECT_EQ(param(R"({"mode":"resume"})"), "continue_from");
}

}  // namespace
}  // namespace ponder::jobs
