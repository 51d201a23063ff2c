#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>

#include <charconv>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/base/utf8.h"

namespace ponder {
namespace {
ErrorCode code_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto r = parse_json(text, limits);
  return r ? ErrorCode::internal : r.error().code;
}
}  // namespace

TEST(Json, KeepsTheOrderOfKeys) {
  const auto v = parse_json(R"({"z":1,"a":{"y":[1,2.5,"é"],"b":null}})");
  ASSERT_TRUE(v);
  EXPECT_EQ(to_json(*v), R"({"z":1,"a":{"y":[1,2.5,"é"],"b":null}})");
}

TEST(Json, WritesNumbersAsPeopleReadThem) {
  EXPECT_EQ(to_json(json::value(0.002)), "0.002");
  EXPECT_EQ(to_json(json::value(3.0)), "3.0");
  EXPECT_EQ(to_json(json::value(-1.5)), "-1.5");
  EXPECT_EQ(to_json(json::value(1e300)), "1e+300");
  EXPECT_EQ(to_json(json::value(std::numeric_limits<double>::quiet_NaN())), "null");
  EXPECT_EQ(to_json(json::value("q\"\n\u0001")), R"("q\"\n\u0001")");
  for (const double d : {0.1, 1.0 / 3, 6.02214076e23, 5e-324, 1.7976931348623157e308, -0.0})
    EXPECT_EQ(parse_json(to_json(json::value(d)))->as_double(), d);
}

// The twin is the C++ library's reading, which is another program; what is too small is zero there
// too.
TEST(Json, ReadsEveryNumberAsTheNearestDouble) {
  std::mt19937_64 random(7);
  const auto digits = [&](std::size_t most) {
    std::string out(1, static_cast<char>('1' + random() % 9));
    for (std::size_t n = random() % most; n > 0; --n)
      out += static_cast<char>('0' + random() % 10);
    return out;
  };
  std::vector<std::string> numbers = {"1111111000006371555158481727942",
                                      "18446744073709551616",
                                      "0.1",
                                      "1E+5",
                                      "1e-5",
                                      "-0.0",
                                      "5e-324",
                                      "2e-324",
                                      "1e-400",
                                      "1.7976931348623158e308",
                                      "0." + std::string(2000, '0') + "7",
                                      std::string(300, '9')};
  for (int i = 0; i < 20'000; ++i) {
    numbers.push_back((random() % 2 ? "-" : "") + digits(25) + "." + digits(25));
    numbers.push_back(digits(3) + "." + digits(20) + "e" +
                      std::to_string(int(random() % 560) - 280));
    numbers.push_back(digits(10) + digits(30) + "1234567890123456789012");
  }
  for (const std::string& number : numbers) {
    double nearest = 0;
    std::from_chars(number.data(), number.data() + number.size(), nearest);
    for (const std::string& text :
         {number, "[" + number + "]", "{\"n\":7,\"m\":" + number + " }"}) {
      const auto read = parse_json(text);
      ASSERT_TRUE(read) << text;
      const json::value& value = read->is_array()    ? read->as_array()[0]
                                 : read->is_object() ? read->as_object().at("m")
                                                     : *read;
      ASSERT_EQ(value.as_double(), nearest) << text;
      ASSERT_EQ(parse_json(to_json(value))->as_double(), nearest) << text;
    }
  }
}

// The slow twin is the library's own writer.
TEST(Json, EscapesTextsAsTheLibraryDoes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(to_json(json::value(one)), json::serialize(json::value(one))) << byte;
    EXPECT_EQ(to_json(json::value("ab" + one + one + "c")),
              json::serialize(json::value("ab" + one + one + "c")))
        << byte;
    all += one;
  }
  EXPECT_EQ(to_json(json::object{{all, all}}), json::serialize(json::object{{all, all}}));
  for (std::size_t at = 0; at < 40; ++at)
    for (const char c : {'"', '\\', '\n', '\x01', '\x1f', ' ', '!', '#', '\x7f', '\xe9'}) {
      std::string text(40, '[');
      text[at] = c;
      EXPECT_EQ(to_json(json::value(text)), json::serialize(json::value(text))) << at;
    }
}

TEST(Json, RefusesWhatBoostWouldSilentlyBend) {
  EXPECT_EQ(code_of(R"({"a":1,"a":2})"), ErrorCode::bad_request);
  EXPECT_EQ(code_of(R"({"n":1e400})"), ErrorCode::bad_request);
  EXPECT_EQ(code_of("1.7976931348623159e308"), ErrorCode::bad_request);
  EXPECT_EQ(code_of("{} {}"), ErrorCode::bad_request);
  EXPECT_EQ(code_of("\"\xFF\""), ErrorCode::bad_request);
  EXPECT_EQ(code_of("NaN"), ErrorCode::bad_request);
  EXPECT_EQ(code_of(""), ErrorCode::bad_request);
  EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})"));
}

TEST(Json, BoundsSizeAndDepthBeforeAnyWork) {
  EXPECT_EQ(code_of(std::string(101, ' '), {.max_bytes = 100}), ErrorCode::too_large);
  for (const std::size_t depth : {65u, 1'000u, 10'000u, 1'000'000u}) {
    const auto r = parse_json(std::string(depth, '['));
    ASSERT_FALSE(r);
    EXPECT_NE(r.error().message.find("64 levels"), std::string::npos) << r.error().message;
  }
  EXPECT_TRUE(parse_json(std::string(60, '[') + std::string(60, ']')));
}

// The parser's own judgement of UTF-8, in keys and in texts, against the plain one.
TEST(Json, RefusesExactlyWhatIsNoUtf8) {
  const auto agrees = [](const std::string& piece) {
    for (const std::string& text : {"[\"ab" + piece + "cd\"]", "{\"ab" + piece + "cd\": 1}"})
      if (parse_json(text).has_value() != is_valid_utf8(piece)) return false;
    return true;
  };
  for (int first = 0x80; first < 0x100; ++first) {
    EXPECT_TRUE(agrees({static_cast<char>(first)})) << first;
    for (int second = 0x80; second < 0x100; ++second) {
      const std::string two{static_cast<char>(first), static_cast<char>(second)};
      EXPECT_TRUE(agrees(two)) << first << " " << second;
      for (const std::string last : {"\x80", "\xbf", "\x80\x80", "\xbf\xbf", "\x80\xc0", "\xc0"})
        EXPECT_TRUE(agrees(two + last)) << first << " " << second;
    }
  }
  EXPECT_EQ(parse_json("[\"\xff\"]").error().message, "the JSON is not valid UTF-8");
}

TEST(Json, BoundsTheNumberOfKeysAndValuesBeforeAnyWork) {
  JsonLimits limits;
  limits.max_values = 6;
  EXPECT_TRUE(parse_json(R"({"a": [1, "b", null]})", limits));  // 1 object, 1 key, 1 array, 3
  for (const char* text :
       {R"({"a": [1, "b", null, true]})", R"({"a": [1, 2.5, {}], "b": []})", "[[[[[[[]]]]]]]"})
    EXPECT_EQ(code_of(text, limits), ErrorCode::bad_request) << text;
}

TEST(Json, FieldsNameTheFieldAndTheRange) {
  const json::object o =
      parse_json(R"({"s":"x","i":3,"d":3.0,"h":3.5,"b":true,"n":null})")->as_object();
  EXPECT_EQ(string_field(o, "s").value(), "x");
  EXPECT_EQ(string_field(o, "n", "fallback").value(), "fallback");
  EXPECT_EQ(int_field(o, "i", 0, 0, 10).value(), 3);
  EXPECT_EQ(int_field(o, "d", 0, 0, 10).value(), 3);
  EXPECT_FALSE(int_field(o, "h", 0, 0, 10));
  EXPECT_FALSE(int_field(o, "b", 0, 0, 1)) << "true is not 1";
  EXPECT_EQ(number_field(o, "h", 0, 0, 10).value(), 3.5);
  EXPECT_TRUE(bool_field(o, "b", false).value());
  const auto bad = int_field(o, "i", 0, 4, 10);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().param, "i");
  EXPECT_NE(bad.error().message.find("4 to 10"), std::string::npos);
  EXPECT_FALSE(has_field(o, "n"));
}
}  // namespace ponder
