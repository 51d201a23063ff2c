#include "engine/text/jinja/strftime.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

namespace ponder::text::jinja {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

struct Moment {
  int year, month, day, hour, minute, second, weekday, day_of_year;
};

Moment moment_of(std::int64_t seconds) {
  using namespace std::chrono;
  const sys_seconds time{std::chrono::seconds(seconds)};
  const sys_days date = floor<days>(time);
  const year_month_day ymd(date);
  const auto in_day = (time - date).count();
  return {int(ymd.year()),
          static_cast<int>(unsigned(ymd.month())),
          static_cast<int>(unsigned(ymd.day())),
          static_cast<int>(in_day / 3600),
          static_cast<int>(in_day / 60 % 60),
          static_cast<int>(in_day % 60),
          static_cast<int>(weekday(date).c_encoding()),
          static_cast<int>((date - sys_days(ymd.year() / 1 / 1)).count()) + 1};
}

}  // namespace

Outcome<std::string> format_time(std::string_view format, std::int64_t seconds) {
  const Moment t = moment_of(seconds);
  const std::string_view month = kMonths[static_cast<std::size_t>(t.month - 1)];
  const std::string_view day = kDays[static_cast<std::size_t>(t.weekday)];
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    ++i;
    const bool bare = format[i] == '-' && i + 1 < format.size();
    if (bare) ++i;
    const auto number = [&](int n, int width) {
      out += bare ? fmt::format("{}", n) : fmt::format("{:0{}}", n, width);
    };
    switch (format[i]) {
      case 'Y':
        number(t.year, 4);
        break;
      case 'y':
        number(t.year % 100, 2);
        break;
      case 'm':
        number(t.month, 2);
        break;
      case 'd':
        number(t.day, 2);
        break;
      case 'e':
        out += bare ? fmt::format("{}", t.day) : fmt::format("{:2}", t.day);
        break;
      case 'H':
        number(t.hour, 2);
        break;
      case 'I':
        number(hour12, 2);
        break;
      case 'M':
        number(t.minute, 2);
        break;
      case 'S':
        number(t.second, 2);
        break;
      case 'j':
        number(t.day_of_year, 3);
        break;
      case 'f':
        out += "000000";
        break;
      case 'B':
        out += month;
        break;
      case 'b':
      case 'h':
        out += month.substr(0, 3);
        break;
      case 'A':
        out += day;
        break;
      case 'a':
        out += day.substr(0, 3);
        break;
      case 'p':
        out += t.hour < 12 ? "AM" : "PM";
        break;
      case 'z':
        break;  // as Python prints a time without a zone
      case 'Z':
        break;
      case 'F':
        out += fmt::format("{:04}-{:02}-{:02}", t.year, t.month, t.day);
        break;
      case 'T':
        out += fmt::format("{:02}:{:02}:{:02}", t.hour, t.minute, t.second);
        break;
      case '%':
        out += '%';
        break;
      default:
        return fault(fmt::format("strftime_now() does not know %{}", format[i]));
    }
  }
  return out;
}

}  // namespace ponder::text::jinja
