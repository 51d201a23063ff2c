// Chat templates are programs from strangers: whatever they do, rendering ends soon and with a
// sentence, and the host is out of reach.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <optional>

#include "engine/base/sanitized.h"
#include "engine/text/chat_template.h"
#include "tests/unit/text/golden_files.h"

namespace ponder::text {
namespace {

std::string repeat(std::string_view part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i)
    all += part;
  return all;
}

// Sanitizers check every range that memmem may read.
constexpr double kSlower = kSanitized ? 20 : 1;

struct Hostile {
  const char* name;
  std::string source;
};

void PrintTo(const Hostile& hostile, std::ostream* out) {
  *out << hostile.name;
}

std::vector<Hostile> hostile_templates() {
  const std::string forever = "{% for a in range(99999) %}{% for b in range(99999) %}";
  const std::string close = "{% endfor %}{% endfor %}";
  const std::string doubling = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}";
  return {
      {"RangeTooLong", "{{ range(10 ** 9) | list }}"},
      {"RangeOverflow", "{{ range(-9223372036854775807, 9223372036854775807) | list }}"},
      {"MethodsOfListsOfMethods",
       "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x].count %}"
       "{% endfor %}"},
      {"LoopsOverLoops",
       "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% for j in [ns.x] %}"
       "{% set ns.x = loop %}{% endfor %}{% endfor %}"},
      {"StringRepeat", "{{ '-' * 10 ** 10 }}"},
      {"ListRepeat", "{{ [0] * 10 ** 10 }}"},
      {"NestedLoops", forever + close},
      {"NestedLoopsWriting", forever + "x" + close},
      {"NestedLoopsOfFilters", forever + "{{ 'abc' | upper | lower | trim | length }}" + close},
      {"NestedLoopsOfCalls",
       "{% macro m(x) %}{{ x }}{% endmacro %}" + forever + "{{ m(a) }}" + close},
      {"DoublingString", doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"},
      {"DoublingByPlus", doubling + "{% set ns.s = ns.s + ns.s %}{% endfor %}"},
      {"DoublingByReplace", doubling + "{% set ns.s = ns.s | replace('a', 'aa') | replace('a', "
                                       "ns.s) %}{% endfor %}"},
      {"DoublingList",
       "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + "
       "ns.s %}{% endfor %}"},
      {"SharedListPrinted",
       "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = "
       "[ns.s, ns.s] %}{% endfor %}{{ ns.s }}"},
      {"SharedListAsJson",
       "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = "
       "[ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}"},
      {"SharedListsCompared",
       "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] "
       "%}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}"},
      {"DeepList",
       "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] "
       "%}{% endfor %}{{ ns.s }}"},
      {"DeepDict",
       "{% set ns = namespace(s={}) %}{% for i in range(99999) %}{% set ns.s = {'a': "
       "ns.s} %}{% endfor %}{{ ns.s | tojson }}"},
      {"EndlessMacro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
      {"EndlessMacroPair",
       "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}"},
      {"BranchingMacro",
       "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% "
       "endmacro %}{{ m(40) }}"},
      {"MacroAsDefault", "{% macro m(x=m()) %}{{ x }}{% endmacro %}{{ m() }}"},
      {"DeepParentheses", "{{ " + repeat("(", 50000) + "1" + repeat(")", 50000) + " }}"},
      {"DeepLists", "{{ " + repeat("[", 50000) + repeat("]", 50000) + " }}"},
      {"DeepDicts", "{{ " + repeat("{1:", 20000) + "1" + repeat("}", 20000) + " }}"},
      {"DeepNots", "{{ " + repeat("not ", 50000) + "1 }}"},
      {"DeepMinus", "{{ " + repeat("-", 100000) + "1 }}"},
      {"DeepIfs", repeat("{% if 1 %}", 20000)},
      {"DeepFors", repeat("{% for a in [1] %}", 10000)},
      {"DeepSubscripts", "{{ a" + repeat("[a", 50000) + repeat("]", 50000) + " }}"},
      {"DeepConditionals", "{{ " + repeat("1 if 1 else ", 20000) + "1 }}"},
      {"ChainedConditionals", "{{ 1" + repeat(" if 1", 40000) + " }}"},
      {"PowerTower", "{{ 9 ** 9 ** 9 ** 9 }}"},
      {"HugeProduct", "{{ 1" + repeat(" * 99999999", 20) + " }}"},
      {"HugeNumber", "{{ " + repeat("9", 100000) + " }}"},
      {"QuadraticSearch",
       "{% set a = 'a' * 9000000 %}{% for i in range(99999) %}{{ (a ~ 'b') in "
       "a }}{% endfor %}"},
      {"QuadraticStrip", "{% set a = 'a' * 4000000 %}{{ a.strip('b' * 4000000 ~ 'a') }}"},
      {"QuadraticIndex",
       "{% set a = 'a' * 9000000 %}{% for i in range(99999) %}{{ a[8999999] }}{% endfor %}"},
      {"QuadraticUnique", "{{ range(99999) | unique | list | length }}"},
      {"SplitToPieces", "{{ ('a' * 9000000).split('a') | length }}"},
      {"SplitOnSpace", "{{ ('a\n' * 4500000).split() | length }}"},
      {"SplitLines", "{{ ('\n' * 9000000).splitlines() | length }}"},
      {"CharactersOfALongText", "{{ ('a' * 9000000) | list | length }}"},
      {"SortForever", "{% for i in range(99999) %}{{ range(99999) | sort | length }}{% endfor %}"},
      {"IndentWide", "{{ ('\n' * 9000) | indent(100000000) }}"},
      {"IndentWideLines", "{{ ('a\n' * 90000) | indent(10000) }}"},
      {"CenterWide", "{{ 'a' | center(1000000000) }}"},
      {"FormatWide", "{{ '%999999999d' % 1 }}"},
      {"JsonIndent", "{{ [[[1]]] | tojson(indent=1000000) }}"},
      {"JsonSeparators",
       "{% set a = 'a' * 9000000 %}{{ range(900) | list | tojson(separators=(a, "
       "a)) }}"},
      {"JoinLong", "{{ range(99999) | join('a' * 9000000) }}"},
      {"ReplaceEmpty", "{{ ('a' * 900000).replace('', 'b' * 900000) }}"},
      {"CycleOfNamespaces", "{% set a = namespace() %}{% set a.a = a %}{% set a.b = [a] %}" +
                                forever + "{{ a.a.a.a.b }}" + close},
      {"ManyNamespaces", forever + "{% set n = namespace(x=a, y=b) %}" + close},
      {"HoldingEverything",
       "{% set a = namespace(l=[]) %}" + forever + "{% set a.l = a.l + ['x' * 9000] %}" + close},
      {"RaiseException", "{{ raise_exception('no') }}"},
      {"LoopOutput", forever + repeat("0123456789", 1000) + close},
      {"CaptureInCapture", forever + "{% set x %}{{ 'y' * 100000 }}{% endset %}" + close},
  };
}

class HostileTemplate : public testing::TestWithParam<Hostile> {};

TEST_P(HostileTemplate, EndsWithASentenceAndSoon) {
  const std::clock_t begin = std::clock();  // of the processor: other programs do not count
  const auto compiled = ChatTemplate::compile(GetParam().source);
  std::optional<Error> error;
  if (!compiled) {
    error = compiled.error();
  } else if (auto pieces = (*compiled)->render({}); !pieces) {
    error = pieces.error();
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::bad_request);
  EXPECT_FALSE(error->message.empty());
  EXPECT_LT(error->message.size(), 600u);
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
  // At most 0.1 s in a release build on a quiet machine; the rest is room for a busy one.
  EXPECT_LT(seconds, 1.0 * kSlower) << error->message;
}

INSTANTIATE_TEST_SUITE_P(All, HostileTemplate, testing::ValuesIn(hostile_templates()),
                         [](const auto& hostile) { return std::string(hostile.param.name); });

TEST(HostileTemplates, KeepMemorySmall) {
  if (kSlower > 1) GTEST_SKIP() << "sanitizers keep freed memory";
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const Hostile& hostile : hostile_templates()) {
    const auto compiled = ChatTemplate::compile(hostile.source);
    const bool rendered = compiled && (*compiled)->render({}).has_value();
    EXPECT_FALSE(rendered) << hostile.name;
  }
  getrusage(RUSAGE_SELF, &after);
  RecordProperty("kib", static_cast<int>(after.ru_maxrss - before.ru_maxrss));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 128 * 1024);  // KiB; limits add up to less
}

TEST(HostileTemplates, ALoopThatRemembersLoopsHoldsNone) {
  // Each loop would hold the one before it, and the first itself: a chain too long to be freed, and
  // a ring that never is.
  const auto compiled = ChatTemplate::compile(
      "{% set ns = namespace(x=1, n=0) %}{% for i in range(20000) %}{% for j in 'a' %}"
      "{% if loop.changed(ns.x, loop) %}{% set ns.n = ns.n + 1 %}{% endif %}{% set ns.x = loop %}"
      "{% endfor %}{% endfor %}{{ ns.n }}");
  EXPECT_EQ(join((*compiled)->render({}).value()), "20000");
}

TEST(HostileTemplates, ReachNothingOfTheHost) {
  const json::object variables = {{"s", "x"}, {"xs", {1}}, {"d", json::object{{"a", 1}}}};
  for (const char* source :
       {"{{ s.__class__.__mro__ }}", "{{ s.__class__.__base__.__subclasses__() }}",
        "{{ xs.__init__.__globals__ }}", "{{ range.__globals__.x }}", "{{ namespace.__init__.x }}",
        "{{ self.__init__.__globals__ }}", "{{ cycler.__init__.__globals__.os }}",
        "{{ lipsum.__globals__ }}", "{{ config.items() }}", "{{ open('/etc/passwd') }}",
        "{{ s.format.__self__ }}", "{{ '{0.__class__}'.format(s) }}", "{{ d.__getitem__('a') }}",
        "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% extends 'x' %}",
        "{% from 'os' import x %}", "{{ strftime_now('%Y') }}", "{{ import('os') }}"}) {
    const auto compiled = ChatTemplate::compile(source);
    const bool rendered = compiled && (*compiled)->render(variables).has_value();
    EXPECT_FALSE(rendered) << source;
  }
}

TEST(HostileTemplates, SourcesThatAreNoTextAreRefused) {
  EXPECT_FALSE(ChatTemplate::compile("a\xFF").has_value());
  EXPECT_FALSE(ChatTemplate::compile(std::string(1 << 20, 'a')).has_value());
  EXPECT_TRUE(ChatTemplate::compile("").has_value());
}

TEST(HostileTemplates, EveryPrefixOfATemplateCompilesOrIsRefused) {
  const std::string source = read_source_file("tests/golden/text/agent_template.jinja");
  for (std::size_t n = 0; n < source.size(); n += 7) {
    const auto compiled = ChatTemplate::compile(std::string_view(source).substr(0, n));
    if (compiled) (void)(*compiled)->render({});
  }
}

TEST(HostileTemplates, DeepVariablesAreRefused) {
  json::value deep = 1;
  for (int i = 0; i < 400; ++i)
    deep = json::array{std::move(deep)};
  const auto compiled = ChatTemplate::compile("{{ deep }}{{ wide | length }}").value();
  const auto text = compiled->render({{"deep", deep}});
  ASSERT_FALSE(text.has_value());
  EXPECT_NE(text.error().message.find("deeper"), std::string::npos);
}

TEST(HostileTemplates, LargeConversationsFitTheLimits) {
  json::array messages;
  for (int i = 0; i < 1000; ++i)
    messages.push_back(
        {{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(8000, 'x')}});
  messages.push_back({{"role", "user"}, {"content", "last"}});
  for (const char* path :
       {"models/pebble/chat_template.jinja", "tests/golden/text/agent_template.jinja"}) {
    const auto compiled = ChatTemplate::compile(read_source_file(path)).value();
    const auto pieces = compiled->render({{"messages", messages}, {"add_generation_prompt", true}});
    ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
    EXPECT_GT(join(*pieces).size(), 8'000'000u);
  }
}

}  // namespace
}  // namespace ponder::text
