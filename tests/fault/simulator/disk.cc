#include "tests/fault/simulator/disk.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>

namespace ponder::simulator {
namespace {
struct Handle;
constexpr std::size_t kSector = 512;
}  // namespace

struct Disk::File {
  struct Write {
    std::size_t at = 0;
    std::string bytes;
    bool truncate = false;
  };
  std::string bytes;    ///< as programs see it
  std::string durable;  ///< as it was at the last sync
  std::vector<Write> unsynced;
  std::vector<Handle*> handles;
  // Shared memory of the write-ahead log.
  std::vector<std::unique_ptr<char[]>> regions;
};

namespace {

thread_local Disk* current_disk = nullptr;

struct Handle {
  sqlite3_file base;
  Disk* disk;
  std::shared_ptr<Disk::File> file;
  std::string name;
  bool temporary;
  int lock = SQLITE_LOCK_NONE;
  unsigned shm_shared = 0;
  unsigned shm_exclusive = 0;
  bool shm = false;
};

Handle& handle(sqlite3_file* file) {
  return *reinterpret_cast<Handle*>(file);
}

int close_file(sqlite3_file* file) {
  Handle& h = handle(file);
  auto& handles = h.file->handles;
  handles.erase(std::find(handles.begin(), handles.end(), &h));
  h.~Handle();
  return SQLITE_OK;
}

int read_file(sqlite3_file* file, void* to, int count, sqlite3_int64 at) {
  const std::string& bytes = handle(file).file->bytes;
  const auto n = static_cast<std::size_t>(count);
  const auto offset = static_cast<std::size_t>(at);
  const std::size_t have = offset < bytes.size() ? std::min(n, bytes.size() - offset) : 0;
  if (have > 0) std::memcpy(to, bytes.data() + offset, have);
  if (have == n) return SQLITE_OK;
  std::memset(static_cast<char*>(to) + have, 0, n - have);
  return SQLITE_IOERR_SHORT_READ;
}

void put(std::string& bytes, const Disk::File::Write& write) {
  if (write.truncate) {
    bytes.resize(write.at);
    return;
  }
  if (bytes.size() < write.at + write.bytes.size()) bytes.resize(write.at + write.bytes.size());
  std::memcpy(bytes.data() + write.at, write.bytes.data(), write.bytes.size());
}

int change(Handle& h, Disk::Change kind, Disk::File::Write write) {
  if (!h.temporary)
    if (const int code = h.disk->before_change(kind); code != SQLITE_OK) return code;
  put(h.file->bytes, write);
  h.file->unsynced.push_back(std::move(write));
  return SQLITE_OK;
}

int write_file(sqlite3_file* file, const void* from, int count, sqlite3_int64 at) {
  return change(
      handle(file), Disk::Change::write,
      {static_cast<std::size_t>(at),
       std::string(static_cast<const char*>(from), static_cast<std::size_t>(count)), false});
}

int truncate_file(sqlite3_file* file, sqlite3_int64 size) {
  Handle& h = handle(file);
  if (static_cast<std::size_t>(size) >= h.file->bytes.size()) return SQLITE_OK;
  return change(h, Disk::Change::truncate, {static_cast<std::size_t>(size), {}, true});
}

int sync_file(sqlite3_file* file, int) {
  Handle& h = handle(file);
  if (!h.temporary)
    if (const int code = h.disk->before_change(Disk::Change::sync); code != SQLITE_OK) return code;
  if (h.disk->sync_does_nothing) return SQLITE_OK;
  for (const Disk::File::Write& write : h.file->unsynced)
    put(h.file->durable, write);
  h.file->unsynced.clear();
  return SQLITE_OK;
}

int size_of_file(sqlite3_file* file, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(handle(file).file->bytes.size());
  return SQLITE_OK;
}

int highest_other_lock(const Handle& h) {
  int highest = SQLITE_LOCK_NONE;
  for (const Handle* other : h.file->handles)
    if (other != &h) highest = std::max(highest, other->lock);
  return highest;
}

int lock_file(sqlite3_file* file, int level) {
  Handle& h = handle(file);
  if (h.lock >= level) return SQLITE_OK;
  const int others = highest_other_lock(h);
  if (level == SQLITE_LOCK_SHARED) {
    if (others >= SQLITE_LOCK_PENDING) return SQLITE_BUSY;
  } else if (others >= SQLITE_LOCK_RESERVED) {
    return SQLITE_BUSY;
  } else if (level == SQLITE_LOCK_EXCLUSIVE && others >= SQLITE_LOCK_SHARED) {
    h.lock = SQLITE_LOCK_PENDING;
    return SQLITE_BUSY;
  }
  h.lock = level;
  return SQLITE_OK;
}

int unlock_file(sqlite3_file* file, int level) {
  handle(file).lock = std::min(handle(file).lock, level);
  return SQLITE_OK;
}

int check_reserved(sqlite3_file* file, int* out) {
  Handle& h = handle(file);
  *out = std::max(h.lock, highest_other_lock(h)) >= SQLITE_LOCK_RESERVED ? 1 : 0;
  return SQLITE_OK;
}

int file_control(sqlite3_file*, int, void*) {
  return SQLITE_NOTFOUND;
}
int sector_size(sqlite3_file*) {
  return 4096;
}
int characteristics(sqlite3_file*) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

int shm_map(sqlite3_file* file, int page, int size, int extend, void volatile** out) {
  Handle& h = handle(file);
  h.shm = true;
  auto& regions = h.file->regions;
  *out = nullptr;
  while (extend && regions.size() <= static_cast<std::size_t>(page))
    regions.push_back(std::make_unique<char[]>(static_cast<std::size_t>(size)));
  if (regions.size() > static_cast<std::size_t>(page))
    *out = regions[static_cast<std::size_t>(page)].get();
  return SQLITE_OK;
}

int shm_lock(sqlite3_file* file, int first, int count, int flags) {
  Handle& h = handle(file);
  const unsigned mask = ((1u << count) - 1) << first;
  if (flags & SQLITE_SHM_UNLOCK) {
    h.shm_shared &= ~mask;
    h.shm_exclusive &= ~mask;
    return SQLITE_OK;
  }
  for (const Handle* other : h.file->handles) {
    if (other == &h) continue;
    const unsigned held =
        other->shm_exclusive | (flags & SQLITE_SHM_EXCLUSIVE ? other->shm_shared : 0);
    if (held & mask) return SQLITE_BUSY;
  }
  (flags & SQLITE_SHM_EXCLUSIVE ? h.shm_exclusive : h.shm_shared) |= mask;
  return SQLITE_OK;
}

void shm_barrier(sqlite3_file*) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

int shm_unmap(sqlite3_file* file, int drop) {
  Handle& h = handle(file);
  h.shm = false;
  h.shm_shared = h.shm_exclusive = 0;
  const bool used = std::any_of(h.file->handles.begin(), h.file->handles.end(),
                                [](const Handle* other) { return other->shm; });
  if (drop && !used) h.file->regions.clear();
  return SQLITE_OK;
}

const sqlite3_io_methods kMethods = {2,
                                     close_file,
                                     read_file,
                                     write_file,
                                     truncate_file,
                                     sync_file,
                                     size_of_file,
                                     lock_file,
                                     unlock_file,
                                     check_reserved,
                                     file_control,
                                     sector_size,
                                     characteristics,
                                     shm_map,
                                     shm_lock,
                                     shm_barrier,
                                     shm_unmap,
                                     nullptr,
                                     nullptr};

int open_file(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if (!current_disk) return SQLITE_CANTOPEN;
  auto* h = new (static_cast<void*>(file)) Handle();
  h->disk = current_disk;
  h->temporary = name == nullptr;
  h->name = name ? name : "";
  // The name of a database exists from the start: Ponder makes the file before SQLite opens it.
  const bool make = (flags & (SQLITE_OPEN_CREATE | SQLITE_OPEN_MAIN_DB)) != 0;
  h->file = name ? current_disk->find(h->name, make) : std::make_shared<Disk::File>();
  if (!h->file) {
    h->~Handle();
    return SQLITE_CANTOPEN;
  }
  h->file->handles.push_back(h);
  h->base.pMethods = &kMethods;
  if (out_flags) *out_flags = flags;
  return SQLITE_OK;
}

int remove_file(sqlite3_vfs*, const char* name, int) {
  if (const int code = current_disk->before_change(Disk::Change::remove); code != SQLITE_OK)
    return code;
  current_disk->remove(name);
  return SQLITE_OK;
}

int access_file(sqlite3_vfs*, const char* name, int, int* out) {
  *out = current_disk && current_disk->find(name, false) ? 1 : 0;
  return SQLITE_OK;
}

int full_name(sqlite3_vfs*, const char* name, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", name);
  return SQLITE_OK;
}

int randomness(sqlite3_vfs*, int count, char* out) {
  thread_local Dice dice(1);  // salts of the log: any will do, as long as they differ
  for (int i = 0; i < count; ++i)
    out[i] = static_cast<char>(dice.number());
  return count;
}

int no_sleep(sqlite3_vfs*, int microseconds) {
  return microseconds;
}

int now(sqlite3_vfs*, double* out) {
  *out = 2460000;
  return SQLITE_OK;
}

void register_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    static sqlite3_vfs vfs{};
    vfs.iVersion = 1;
    vfs.szOsFile = sizeof(Handle);
    vfs.mxPathname = 1024;
    vfs.zName = "simulated-disk";
    vfs.xOpen = open_file;
    vfs.xDelete = remove_file;
    vfs.xAccess = access_file;
    vfs.xFullPathname = full_name;
    vfs.xRandomness = randomness;
    vfs.xSleep = no_sleep;
    vfs.xCurrentTime = now;
    sqlite3_vfs_register(&vfs, 1);
  });
}
}  // namespace

Disk::Disk(Image image) {
  register_once();
  for (auto& [name, bytes] : image) {
    auto file = std::make_shared<File>();
    file->bytes = bytes;
    file->durable = std::move(bytes);
    files_.emplace(name, std::move(file));
  }
}

Disk::~Disk() {
  if (current_disk == this) current_disk = nullptr;
}

void Disk::make_current() {
  current_disk = this;
}

std::shared_ptr<Disk::File> Disk::find(const std::string& name, bool make) {
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second;
  if (!make) return nullptr;
  return files_.emplace(name, std::make_shared<File>()).first->second;
}

Image Disk::as_written() const {
  Image image;
  for (const auto& [name, file] : files_)
    image[name] = file->bytes;
  return image;
}

Image Disk::after_power_cut(Dice& dice) const {
  Image image;
  for (const auto& [name, file] : files_) {
    std::string bytes = file->durable;
    const int kind = dice.below(3);  // nothing of it, its beginning, any of it
    const auto count = file->unsynced.size();
    const std::size_t whole =
        kind == 1 && count > 0 ? dice.number() % (count + 1) : (kind == 0 ? 0 : count);
    for (std::size_t i = 0; i < whole; ++i) {
      File::Write write = file->unsynced[i];
      if (kind == 2 && dice.percent(40)) continue;
      const bool torn = !write.truncate && write.bytes.size() > kSector &&
                        (kind == 2 ? dice.percent(20) : i + 1 == whole && dice.percent(50));
      if (torn) {
        const std::size_t sectors = write.bytes.size() / kSector;
        const std::size_t from = dice.number() % sectors * kSector;
        if (dice.percent(50)) {
          write.bytes.resize(from);
        } else {
          write.bytes.erase(0, from);
          write.at += from;
        }
      }
      put(bytes, write);
    }
    image[name] = std::move(bytes);
  }
  return image;
}

}  // namespace ponder::simulator
