#pragma once
// CHECK: a broken invariant is a bug; say where and abort. Always on.
#include <string_view>

namespace ponder {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);
}

#define CHECK(condition) \
  ((condition) ? (void)0 : ::ponder::check_failed(__FILE__, __LINE__, #condition, {}))
/// With a message (a std::string or literal) that names the values.
#define CHECK_MSG(condition, message) \
  ((condition) ? (void)0 : ::ponder::check_failed(__FILE__, __LINE__, #condition, (message)))
#ifdef NDEBUG
#define DCHECK(condition) ((void)0)
#else
#define DCHECK(condition) CHECK(condition)
#endif
