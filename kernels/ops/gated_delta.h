#pragma once
// The gated delta rule, token by token in order of position, for each value head h with key head
// h mod k_heads and its state S [dk, dv] in f32:
//
//   S <- decay S;   d = beta (v - S^T k);   S <- S + k d^T;   o = S^T q
//
// q and k come normalised (l2_norm, with the 1/sqrt(dk) in q's scale). Every value column is
// independent of the others, so the state is kept in strips of 16 columns: [head][dv / 16][dk][16];
// one strip (8 KiB at dk = 128) stays in the L1 cache over all tokens of a call. element
// (i, j) of head h lies at ((h * dv / 16 + j / 16) * dk + i) * 16 + j % 16.
//
// Rows on trial: with leave_state the outputs are computed on a copy and `state` stays as it is;
// later, with o null, the same k, v, decay and beta of those that are kept update it, to the same
// bits as if they had been read at once.
//
// gated_delta_gates: beta = sigmoid(b),  decay = exp(ssm_a * softplus(a + ssm_dt)).
#include <cstdint>

namespace ponder::kernels {

struct GatedDelta {
  const float* q = nullptr;      ///< [n, k_heads, dk]; not read when o is null
  const float* k = nullptr;      ///< [n, k_heads, dk]
  const float* v = nullptr;      ///< [n, v_heads, dv]
  std::int64_t qkv_stride = 0;   ///< floats from row to row of q, k and v (parts of one buffer)
  const float* decay = nullptr;  ///< [n, v_heads], in [0, 1]
  const float* beta = nullptr;   ///< [n, v_heads]
  float* state = nullptr;        ///< [v_heads, dv / 16, dk, 16], read and written
  float* o = nullptr;  ///< [n, v_heads, dv], written; no overlap with the inputs; null: no output
  std::int64_t n = 0;
  std::int64_t k_heads = 0;
  std::int64_t v_heads = 0;
  std::int64_t dk = 0;       ///< a multiple of 4, at most 1024
  std::int64_t dv = 0;       ///< a multiple of 16
  bool leave_state = false;  ///< `state` is only read
};

struct GatedDeltaGates {
  const float* a = nullptr;       ///< [n, heads], the ssm_alpha projection
  const float* b = nullptr;       ///< [n, heads], the ssm_beta projection
  const float* ssm_a = nullptr;   ///< [heads], as stored (negative)
  const float* ssm_dt = nullptr;  ///< [heads]
  float* decay = nullptr;         ///< [n, heads], written; may be a
  float* beta = nullptr;          ///< [n, heads], written; may be b
  std::int64_t n = 0;
  std::int64_t heads = 0;
  std::int64_t a_stride = 0;  ///< floats from row to row; 0: heads
  std::int64_t b_stride = 0;
};

}  // namespace ponder::kernels
