#pragma once
// One piece of zeroed, page-aligned memory that is handed out from front to back and given back
// as a whole: weights at load, scratch of a step. Large ones ask for 2 MiB pages. Move-only; not
// thread-safe while take() is in use.
#include <cstddef>
#include <span>

#include "engine/base/error.h"

namespace ponder::kernels {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;
  /// `bytes` rounded up as take() rounds: what a sequence of takes needs is the sum of these.
  static constexpr std::size_t padded(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Small ones for what comes and goes. To fill 5 MiB, fresh from the kernel, took 0.5 or 9 ms in
  /// large pages, as the kernel had some ready or not, and always 1.4 ms in small ones (Zen 4,
  /// virtual).
  enum class Pages { large, small };

  Arena() = default;
  /// out_of_memory if the kernel refuses. Pages are touched, and so counted, only when written.
  static Result<Arena> make(std::size_t bytes, Pages pages = Pages::large);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  /// The next `bytes`, aligned to 64. CHECKs that they are there.
  std::byte* take(std::size_t bytes);
  template <class T>
  std::span<T> take_array(std::size_t count) {
    return {reinterpret_cast<T*>(take(count * sizeof(T))), count};
  }
  void rewind() { used_ = 0; }  ///< forget all takes; contents stay as they are
  std::size_t size() const { return size_; }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace ponder::kernels
