#include "tests/support/reference_qwen35.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

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
  explicit Reference(const artifact::Gguf& file) : file_(file) {}

  std::vector<double> run(std::span<const std::int32_t> ids) {
    const std::int64_t layers =
        key("block_count") - file_.integer("qwen35.nextn_predict_layers").value_or(0);
    std::vector<Row> stream;
    const std::vector<float>& embedding = tensor("token_embd.weight");
    const auto hidden = static_cast<std::size_t>(key("embedding_length"));
    for (const std::int32_t id : ids)
      stream.emplace_back(embedding.begin() + id * static_cast<std::int64_t>(hidden),
                          embedding.begin() + (id + 1) * static_cast<std::int64_t>(hidden));
    for (std::int64_t i = 0; i < layers; ++i) {
      prefix_ = "blk." + std::to_string(i) + ".";
      const bool attends = (i + 1) % key("full_attention_interval") == 0;
      add(stream, attends ? attention(normed(stream, "attn_norm.weight"))
                          : delta_net(normed(stream, "attn_norm.weight")));
      add(stream, feed_forward(normed(stream, "post_attention_norm.weight")));
    }
    prefix_ = "";
    const bool tied = file_.find("output.weight") == nullptr;
    std::vector<double> out;
    for (const Row& x : normed(stream, "output_norm.weight")) {
      const Row y = times(tied ? "token_embd.weight" : "output.weight", x);
      out.insert(out.end(), y.begin(), y.end());
    }
    return out;
  }

 private:
  std::int64_t key(const char* name) const {
    return file_.integer(std::string("qwen35.") + name).value();
  }
  double eps() const { return file_.number("qwen35.attention.layer_norm_rms_epsilon").value(); }

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

  Row times(const std::string& name, const Row& x) {
    const std::vector<float>& w = tensor(name);
    Row y(w.size() / x.size());
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t c = 0; c < x.size(); ++c)
        y[r] += static_cast<double>(w[r * x.size() + c]) * x[c];
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
      Row gate = times("ffn_gate.weight", x);
      const Row up = times("ffn_up.weight", x);
      for (std::size_t i = 0; i < gate.size(); ++i)
        gate[i] = silu(gate[i]) * up[i];
      out.push_back(times("ffn_down.weight", gate));
    }
    return out;
  }

  void rotate(Row& head, std::int64_t position) const {
    const auto half = static_cast<std::size_t>(key("rope.dimension_count") / 2);
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(file_.number("qwen35.rope.freq_base").value(),
                                    -static_cast<double>(i) / static_cast<double>(half));
      const double a = head[i], b = head[i + half];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + half] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  std::vector<Row> attention(const std::vector<Row>& in) {
    const auto heads = static_cast<std::size_t>(key("attention.head_count"));
    const auto kv_heads = static_cast<std::size_t>(key("attention.head_count_kv"));
    const auto d = static_cast<std::size_t>(key("attention.key_length"));
    std::vector<std::vector<Row>> keys, values;  // [token][kv head]
    std::vector<Row> out;
    for (std::size_t t = 0; t < in.size(); ++t) {
      const Row qg = times("attn_q.weight", in[t]), k = times("attn_k.weight", in[t]),
                v = times("attn_v.weight", in[t]);
      keys.emplace_back();
      values.emplace_back();
      for (std::size_t h = 0; h < kv_heads; ++h) {
        Row head = rms(slice(k, h * d, d), "attn_k_norm.weight");
        rotate(head, static_cast<std::int64_t>(t));
        keys[t].push_back(head);
        values[t].push_back(slice(v, h * d, d));
      }
      Row joined;
      for (std::size_t h = 0; h < heads; ++h) {
        Row q = rms(slice(qg, h * 2 * d, d), "attn_q_norm.weight");
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
          joined.push_back(y * sigmoid(qg[h * 2 * d + d + i]));
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
  std::string prefix_;
  std::map<std::string, std::vector<float>> tensors_;
};

}  // namespace

std::vector<double> reference_logits(const artifact::Gguf& file,
                                     std::span<const std::int32_t> ids) {
  return Reference(file).run(ids);
}

}  // namespace ponder::testing
