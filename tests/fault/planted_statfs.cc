// A directory that lies on another file system than it does, for one program and its children:
// preload this library, name the directory in PONDER_STATFS_DIR and the magic number of statfs(2),
// in any base, in PONDER_STATFS_TYPE.
//
//   LD_PRELOAD=build/release/tests/libplanted_statfs.so PONDER_STATFS_DIR=/tmp/home
//   PONDER_STATFS_TYPE=0x6969 ponderd --home /tmp/home
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include <cstring>
#include <string>

namespace {

template <class Buffer>
int answer(const char* path, int done, Buffer* buffer) {
  const char* directory = std::getenv("PONDER_STATFS_DIR");
  const char* type = std::getenv("PONDER_STATFS_TYPE");
  if (done != 0 || !directory || !type ||
      std::strncmp(path, directory, std::strlen(directory)) != 0)
    return done;
  buffer->f_type = static_cast<decltype(buffer->f_type)>(std::strtoull(type, nullptr, 0));
  return done;
}

std::string path_of(int fd) {
  char path[PATH_MAX] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return ::realpath(link.c_str(), path) ? path : "";
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
}  // namespace

extern "C" {
int statfs(const char* path, struct statfs* buffer) {
  static auto* const call = real<int(const char*, struct statfs*)>("statfs");
  return answer(path, call(path, buffer), buffer);
}
int statfs64(const char* path, struct statfs64* buffer) {
  static auto* const call = real<int(const char*, struct statfs64*)>("statfs64");
  return answer(path, call(path, buffer), buffer);
}
int fstatfs(int fd, struct statfs* buffer) {
  static auto* const call = real<int(int, struct statfs*)>("fstatfs");
  return answer(path_of(fd).c_str(), call(fd, buffer), buffer);
}
int fstatfs64(int fd, struct statfs64* buffer) {
  static auto* const call = real<int(int, struct statfs64*)>("fstatfs64");
  return answer(path_of(fd).c_str(), call(fd, buffer), buffer);
}
}
