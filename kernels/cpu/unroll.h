#pragma once
// PONDER_UNROLL before a loop with a constant count of at most 16: unrolled completely, so that
// arrays of lanes indexed by it live in registers (1.6 to 2.6 times the speed of the matrix
// products).
//
// A translation unit whose lanes are arrays in memory (isa_plain*.cc) defines PONDER_SMALL_CODE
// first: there neither helps, and both together keep the compiler busy for minutes.
#if defined(PONDER_SMALL_CODE)
#define PONDER_UNROLL
#elif defined(__clang__)
#define PONDER_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PONDER_UNROLL _Pragma("GCC unroll 16")
#endif
/// Before a function whose lanes must stay in registers across its call.
#if defined(PONDER_SMALL_CODE)
#define PONDER_INLINE inline
#else
#define PONDER_INLINE __attribute__((always_inline)) inline
#endif
