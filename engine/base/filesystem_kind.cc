#include "engine/base/filesystem_kind.h"

#if defined(__linux__)
#include <sys/vfs.h>
#endif

#include <array>

namespace ponder {
namespace {
struct Row {
  std::uint32_t magic;
  FilesystemKind kind;
};
// Magic numbers as in linux/magic.h and statfs(2).
constexpr std::array<Row, 12> kKinds{{
    {0x00006969, {"NFS", false, false}},
    {0xFF534D42, {"CIFS", false, false}},
    {0xFE534D42, {"SMB2", false, false}},
    {0x0000517B, {"SMB", false, false}},
    {0x01021997, {"9p (a Windows drive under WSL)", false, false}},
    {0x65735546, {"FUSE", false, false}},
    {0x5346414F, {"AFS", false, false}},
    {0x00C36400, {"Ceph", false, false}},
    {0x0BD00BD0, {"Lustre", false, false}},
    {0x786F4256, {"a VirtualBox shared folder", false, false}},
    {0x01021994, {"tmpfs", true, true}},
    {0x858458F6, {"ramfs", true, true}},
}};
}  // namespace

FilesystemKind filesystem_kind(std::uint64_t f_type) {
  for (const Row& row : kKinds)
    if (row.magic == static_cast<std::uint32_t>(f_type)) return row.kind;
  return {};
}

FilesystemKind filesystem_kind_of(const std::filesystem::path& path) {
#if defined(__linux__)
  struct statfs s {};
  if (::statfs(path.c_str(), &s) == 0) return filesystem_kind(static_cast<std::uint64_t>(s.f_type));
#else
  (void)path;
#endif
  return {};
}

}  // namespace ponder
