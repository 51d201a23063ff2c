#include "tests/support/reference_decoder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "kernels/core/weight.h"

namespace ponder::testing {
namespace {

using Row = std::vector<double>;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}

class Reference {
 public:
  Reference(const artifact::Gguf& file, Mistake mistake)
      : file_(file),
        mistake_(mistake),
        architecture_(file.string("general.architecture").value()),
        hybrid_(architecture_.starts_with("qwen35")) {}

  std::vector<double> run(std::span<const std::int32_t> ids) {
    std::vector<double> out;
    for (const Row& x : hidden(ids)) {
      const Row y = head(x);
      out.insert(out.end(), y.begin(), y.end());
    }
    return out;
  }

  /// All entries anew for each guess.
  std::vector<double> guesses(std::span<const std::int32_t> ids,
                              std::span<const std::int32_t> next) {
    std::vector<double> out;
    std::vector<Row> states = hidden(ids);
    std::vector<std::int32_t> tokens(ids.begin() + 1, ids.end());
    for (const std::int32_t id : next) {
      tokens.push_back(id);
      std::vector<Row> stream = embedded(tokens);
      prefix_ = "blk." + std::to_string(layers()) + ".";
      for (std::size_t t = 0; t < stream.size(); ++t) {
        Row joined = rms(stream[t], "nextn.enorm.weight");
        const Row state = rms(states[t], "nextn.hnorm.weight");
        joined.insert(joined.end(), state.begin(), state.end());
        stream[t] = times("nextn.eh_proj.weight", joined);
      }
      add(stream, attention(normed(stream, "attn_norm.weight")));
      const std::vector<Row> x = normed(stream, "post_attention_norm.weight");
      add(stream, holds("ffn_gate_inp.weight") ? mixture(x) : feed_forward(x));
      states.push_back(rms(stream.back(), "nextn.shared_head_norm.weight"));
      prefix_ = "";
      const Row y = head(states.back());
      out.insert(out.end(), y.begin(), y.end());
    }
    return out;
  }

 private:
  std::int64_t layers() const { return key("block_count") - key_or("nextn_predict_layers", 0); }

  std::vector<Row> embedded(std::span<const std::int32_t> ids) {
    std::vector<Row> out;
    const std::vector<float>& embedding = tensor("token_embd.weight");
    const std::int64_t width = key("embedding_length");
    for (const std::int32_t id : ids)
      out.emplace_back(embedding.begin() + id * width, embedding.begin() + (id + 1) * width);
    return out;
  }
  Row head(const Row& x) {
    return times(holds("output.weight") ? "output.weight" : "token_embd.weight", x);
  }

  /// After the last norm.
  std::vector<Row> hidden(std::span<const std::int32_t> ids) {
    std::vector<Row> stream = embedded(ids);
    for (std::int64_t i = 0; i < layers(); ++i) {
      prefix_ = "blk." + std::to_string(i) + ".";
      const bool attends = !hybrid_ || (i + 1) % key("full_attention_interval") == 0;
      add(stream, attends ? attention(normed(stream, "attn_norm.weight"))
                          : delta_net(normed(stream, "attn_norm.weight")));
      const std::vector<Row> x =
          normed(stream, hybrid_ ? "post_attention_norm.weight" : "ffn_norm.weight");
      add(stream, holds("ffn_gate_inp.weight") ? mixture(x) : feed_forward(x));
    }
    prefix_ = "";
    return normed(stream, "output_norm.weight");
  }

  std::int64_t key(const char* name) const {
    return file_.integer(architecture_ + "." + name).value();
  }
  std::int64_t key_or(const char* name, std::int64_t fallback) const {
    return file_.integer(architecture_ + "." + name).value_or(fallback);
  }
  double number(const char* name) const { return file_.number(architecture_ + "." + name).value(); }
  double eps() const { return number("attention.layer_norm_rms_epsilon"); }
  bool holds(const std::string& name) const { return file_.find(prefix_ + name) != nullptr; }

  const std::vector<float>& tensor(const std::string& name) {
    const auto found = tensors_.find(prefix_ + name);
    if (found != tensors_.end()) return found->second;
    const artifact::TensorInfo* info = file_.find(prefix_ + name);
    CHECK_MSG(info != nullptr, prefix_ + name);
    std::vector<std::byte> stored(info->bytes);
    CHECK(file_.read(*info, stored).has_value());
    std::int64_t count = 1;
    for (const std::uint64_t extent : info->extents)
      count *= static_cast<std::int64_t>(extent);
    std::vector<float> values(static_cast<std::size_t>(count));
    kernels::decode(info->type, stored.data(), count, values.data());
    return tensors_[prefix_ + name] = std::move(values);
  }

  /// Matrix number `index` of `count` that the tensor holds, times x.
  Row times(const std::string& name, const Row& x, std::size_t index = 0, std::size_t count = 1) {
    const std::vector<float>& w = tensor(name);
    Row y(w.size() / count / x.size());
    const std::size_t first = index * y.size() * x.size();
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t c = 0; c < x.size(); ++c)
        y[r] += static_cast<double>(w[first + r * x.size() + c]) * x[c];
    return y;
  }

  /// x over its root mean square, times the stored weight.
  Row rms(const Row& x, const std::string& weight) {
    const std::vector<float>& w = tensor(weight);
    double squares = 0;
    for (const double v : x)
      squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps());
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] * scale * static_cast<double>(w[i]);
    return y;
  }
  std::vector<Row> normed(const std::vector<Row>& stream, const std::string& weight) {
    std::vector<Row> out;
    for (const Row& x : stream)
      out.push_back(rms(x, weight));
    return out;
  }
  static void add(std::vector<Row>& stream, const std::vector<Row>& more) {
    for (std::size_t t = 0; t < stream.size(); ++t)
      for (std::size_t i = 0; i < stream[t].size(); ++i)
        stream[t][i] += more[t][i];
  }

  std::vector<Row> feed_forward(const std::vector<Row>& in) {
    std::vector<Row> out;
    for (const Row& x : in) {
      out.push_back(
          gated(times("ffn_gate.weight", x), times("ffn_up.weight", x), "ffn_down.weight", 0, 1));
    }
    return out;
  }

  /// The experts of the largest probabilities (the lower number wins a tie), weighted by those
  /// probabilities over their sum; and the shared expert behind its sigmoid.
  std::vector<Row> mixture(const std::vector<Row>& in) {
    const auto experts = static_cast<std::size_t>(key("expert_count"));
    const auto used = static_cast<std::size_t>(key("expert_used_count"));
    std::vector<Row> out;
    for (const Row& x : in) {
      Row p = times("ffn_gate_inp.weight", x);
      const double top = *std::max_element(p.begin(), p.end());
      double all = 0;
      for (double& v : p)
        all += v = std::exp(v - top);
      for (double& v : p)
        v /= all;
      std::vector<std::size_t> order(experts);
      for (std::size_t e = 0; e < experts; ++e)
        order[e] = e;
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        if (mistake_ == Mistake::higher_expert_wins_ties && p[a] == p[b]) return a > b;
        return p[a] > p[b];
      });
      double chosen = 0;
      for (std::size_t r = 0; r < used; ++r)
        chosen += p[order[r]];
      if (mistake_ == Mistake::no_renormalisation) chosen = 1;
      Row y(x.size());
      for (std::size_t r = 0; r < used; ++r) {
        const Row one = expert(x, order[r], experts);
        for (std::size_t i = 0; i < y.size(); ++i)
          y[i] += p[order[r]] / chosen * one[i];
      }
      if (holds("ffn_gate_inp_shexp.weight")) {
        const double gate = mistake_ == Mistake::no_shared_gate
                                ? 1
                                : sigmoid(times("ffn_gate_inp_shexp.weight", x)[0]);
        const Row shared = gated(times("ffn_gate_shexp.weight", x), times("ffn_up_shexp.weight", x),
                                 "ffn_down_shexp.weight", 0, 1);
        for (std::size_t i = 0; i < y.size(); ++i)
          y[i] += gate * shared[i];
      }
      out.push_back(y);
    }
    return out;
  }
  Row expert(const Row& x, std::size_t e, std::size_t experts) {
    if (!holds("ffn_gate_up_exps.weight"))
      return gated(times("ffn_gate_exps.weight", x, e, experts),
                   times("ffn_up_exps.weight", x, e, experts), "ffn_down_exps.weight", e, experts);
    const Row both = times("ffn_gate_up_exps.weight", x, e, experts);
    const std::size_t half = both.size() / 2;
    return gated(slice(both, 0, half), slice(both, half, half), "ffn_down_exps.weight", e, experts);
  }
  Row gated(Row gate, const Row& up, const std::string& down, std::size_t index,
            std::size_t count) {
    for (std::size_t i = 0; i < gate.size(); ++i)
      gate[i] = silu(gate[i]) * up[i];
    return times(down, gate, index, count);
  }

  void rotate(Row& head, std::int64_t position) {
    const auto half = static_cast<std::size_t>(
        key_or("rope.dimension_count", static_cast<std::int64_t>(head.size())) / 2);
    const std::string prefix = std::exchange(prefix_, "");
    for (std::size_t i = 0; i < half; ++i) {
      double angle =
          static_cast<double>(position) *
          std::pow(number("rope.freq_base"), -static_cast<double>(i) / static_cast<double>(half));
      if (mistake_ != Mistake::no_rope_divisors && holds("rope_freqs.weight"))
        angle /= static_cast<double>(tensor("rope_freqs.weight")[i]);
      const bool neighbours =
          (architecture_ == "llama") != (mistake_ == Mistake::other_rope_pairing);
      double& a = head[neighbours ? 2 * i : i];
      double& b = head[neighbours ? 2 * i + 1 : i + half];
      const double before = a;
      a = before * std::cos(angle) - b * std::sin(angle);
      b = before * std::sin(angle) + b * std::cos(angle);
    }
    prefix_ = prefix;
  }
  /// The norm of a head where the model has one.
  Row head_norm(const Row& head, const std::string& weight) {
    return mistake_ != Mistake::no_head_norms && holds(weight) ? rms(head, weight) : head;
  }

  std::vector<Row> attention(const std::vector<Row>& in) {
    const auto heads = static_cast<std::size_t>(key("attention.head_count"));
    const auto kv_heads = static_cast<std::size_t>(key("attention.head_count_kv"));
    const auto d = static_cast<std::size_t>(
        key_or("attention.key_length", key("embedding_length") / static_cast<std::int64_t>(heads)));
    const std::size_t stride = hybrid_ ? 2 * d : d;  // there a gate follows each head's query
    std::vector<std::vector<Row>> keys, values;      // [token][kv head]
    std::vector<Row> out;
    for (std::size_t t = 0; t < in.size(); ++t) {
      const Row qg = times("attn_q.weight", in[t]), k = times("attn_k.weight", in[t]),
                v = times("attn_v.weight", in[t]);
      keys.emplace_back();
      values.emplace_back();
      for (std::size_t h = 0; h < kv_heads; ++h) {
        Row head = head_norm(slice(k, h * d, d), "attn_k_norm.weight");
        rotate(head, static_cast<std::int64_t>(t));
        keys[t].push_back(head);
        values[t].push_back(slice(v, h * d, d));
      }
      Row joined;
      for (std::size_t h = 0; h < heads; ++h) {
        Row q = head_norm(slice(qg, h * stride, d), "attn_q_norm.weight");
        rotate(q, static_cast<std::int64_t>(t));
        const std::size_t kv = h / (heads / kv_heads);
        Row scores;
        for (std::size_t j = 0; j <= t; ++j)
          scores.push_back(dot(q, keys[j][kv]) / std::sqrt(static_cast<double>(d)));
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& s : scores)
          sum += s = std::exp(s - top);
        for (std::size_t i = 0; i < d; ++i) {
          double y = 0;
          for (std::size_t j = 0; j <= t; ++j)
            y += scores[j] / sum * values[j][kv][i];
          joined.push_back(hybrid_ ? y * sigmoid(qg[h * stride + d + i]) : y);
        }
      }
      out.push_back(times("attn_output.weight", joined));
    }
    return out;
  }

  std::vector<Row> delta_net(const std::vector<Row>& in) {
    const auto k_heads = static_cast<std::size_t>(key("ssm.group_count"));
    const auto v_heads = static_cast<std::size_t>(key("ssm.time_step_rank"));
    const auto d = static_cast<std::size_t>(key("ssm.state_size"));
    const std::size_t kd = k_heads * d;
    std::vector<Row> projected, out;
    std::vector<std::vector<Row>> state(v_heads,
                                        std::vector<Row>(d, Row(d)));  // [head][key][value]
    for (std::size_t t = 0; t < in.size(); ++t) {
      projected.push_back(times("attn_qkv.weight", in[t]));
      const std::vector<float>& taps = tensor("ssm_conv1d.weight");
      Row u(projected[t].size());
      for (std::size_t c = 0; c < u.size(); ++c) {
        for (std::size_t j = 0; j < 4; ++j)
          if (t + j >= 3) u[c] += static_cast<double>(taps[c * 4 + j]) * projected[t + j - 3][c];
        u[c] = silu(u[c]);
      }
      const Row z = times("attn_gate.weight", in[t]), a = times("ssm_alpha.weight", in[t]),
                b = times("ssm_beta.weight", in[t]);
      Row joined;
      for (std::size_t h = 0; h < v_heads; ++h) {
        const std::size_t kh = h % k_heads;
        const Row q = unit(slice(u, kh * d, d), 1 / std::sqrt(static_cast<double>(d)));
        const Row k = unit(slice(u, kd + kh * d, d), 1);
        const Row v = slice(u, 2 * kd + h * d, d);
        const double decay =
            std::exp(static_cast<double>(tensor("ssm_a")[h]) *
                     std::log1p(std::exp(a[h] + static_cast<double>(tensor("ssm_dt.bias")[h]))));
        const double beta = sigmoid(b[h]);
        std::vector<Row>& s = state[h];
        Row o(d);
        for (std::size_t j = 0; j < d; ++j) {
          double seen = 0;
          for (std::size_t i = 0; i < d; ++i)
            seen += (s[i][j] *= decay) * k[i];
          for (std::size_t i = 0; i < d; ++i)
            o[j] += (s[i][j] += k[i] * beta * (v[j] - seen)) * q[i];
        }
        o = rms(o, "ssm_norm.weight");
        for (std::size_t j = 0; j < d; ++j)
          joined.push_back(o[j] * silu(z[h * d + j]));
      }
      out.push_back(times("ssm_out.weight", joined));
    }
    return out;
  }

  static Row slice(const Row& x, std::size_t first, std::size_t count) {
    return Row(x.begin() + static_cast<std::ptrdiff_t>(first),
               x.begin() + static_cast<std::ptrdiff_t>(first + count));
  }
  static double dot(const Row& a, const Row& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      sum += a[i] * b[i];
    return sum;
  }
  static Row unit(Row x, double scale) {
    const double norm = 1 / std::sqrt(dot(x, x) + 1e-6);
    for (double& v : x)
      v *= norm * scale;
    return x;
  }

  const artifact::Gguf& file_;
  const Mistake mistake_;
  const std::string architecture_;
  const bool hybrid_;
  std::string prefix_;
  std::map<std::string, std::vector<float>> tensors_;
};

}  // namespace

std::vector<double> reference_logits(const artifact::Gguf& file, std::span<const std::int32_t> ids,
                                     Mistake mistake) {
  return Reference(file, mistake).run(ids);
}

std::vector<double> reference_guesses(const artifact::Gguf& file, std::span<const std::int32_t> ids,
                                      std::span<const std::int32_t> next) {
  return Reference(file, Mistake::none).guesses(ids, next);
}

}  // namespace ponder::testing
