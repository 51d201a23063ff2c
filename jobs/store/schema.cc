#include "jobs/store/schema.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "jobs/migrations.h"
#include "jobs/store/migrate.h"

namespace ponder::jobs {
namespace {

struct Object {
  std::int64_t row = 0;
  std::string type, name, table, sql;
  bool operator==(const Object& other) const {
    return type == other.type && name == other.name && table == other.table && sql == other.sql;
  }
};
using Objects = std::vector<Object>;

Result<Objects> objects_of(Database& db) {
  Objects objects;
  TRY(Statement all, db.prepare("SELECT rowid, type, name, tbl_name, sql FROM sqlite_schema"));
  Cursor c(all);
  for (;;) {
    TRY(const bool row, c.step());
    if (!row) return objects;
    objects.push_back({c.integer_at(0), c.text_at(1), c.text_at(2), c.text_at(3), c.text_at(4)});
  }
}

/// What the migrations make, tried out in memory.
Result<Objects> expected(std::int64_t version) {
  TRY(Database db, Database::in_memory());
  for (std::int64_t v = 0; v < version; ++v)
    TRY_VOID(db.execute(kMigrations[static_cast<std::size_t>(v)]));
  return objects_of(db);
}

/// Those of `some` that are not among `others`.
Objects without(const Objects& some, const Objects& others) {
  Objects left;
  for (const Object& object : some)
    if (std::find(others.begin(), others.end(), object) == others.end()) left.push_back(object);
  return left;
}
}  // namespace

Result<void> check_schema(Database& db, std::int64_t version) {
  TRY(const Objects there, objects_of(db));
  TRY(const Objects wanted, expected(version));
  for (const Object& missing : without(wanted, there)) {
    const bool other = std::any_of(there.begin(), there.end(), [&](const Object& object) {
      return object.name == missing.name;
    });
    if (other || missing.type != "trigger") return fail(db.damage("its schema"));
  }
  for (const Object& foreign : without(there, wanted))
    if (foreign.name != "sqlite_stat1") return fail(db.damage("its schema"));
  return {};
}

Result<void> mend_schema(Database& db) {
  TRY_VOID(db.execute("DELETE FROM sqlite_schema WHERE type = 'trigger'"));
  TRY(const Objects there, objects_of(db));
  Objects best_missing, best_foreign;
  std::size_t least = there.size() + 1;
  for (std::int64_t version = newest_schema(); version > 0; --version) {
    TRY(Objects wanted, expected(version));
    std::erase_if(wanted, [](const Object& object) { return object.type == "trigger"; });
    Objects foreign = without(there, wanted);
    if (foreign.size() >= least) continue;
    least = foreign.size();
    best_foreign = std::move(foreign);
    best_missing = without(wanted, there);
  }
  if (best_foreign.size() == 1 && best_missing.size() == 1) {
    TRY(Statement put, db.prepare("UPDATE sqlite_schema SET type = ?2, name = ?3, tbl_name = ?4, "
                                  "sql = ?5 WHERE rowid = ?1"));
    const Object& right = best_missing.front();
    TRY_VOID(Cursor(put)
                 .integer(1, best_foreign.front().row)
                 .text(2, right.type)
                 .text(3, right.name)
                 .text(4, right.table)
                 .text_or_null(5, right.sql)  // an index that SQLite made has none
                 .run());
  }
  return db.execute("PRAGMA writable_schema = RESET");
}

}  // namespace ponder::jobs
