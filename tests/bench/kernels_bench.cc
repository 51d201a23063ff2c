// Speed of each op and weight format at the shapes of the bundled model, and of a whole step of
// it (all ops in order on random weights). The instruction set is PONDER_CPU or the best one; one
// thread, or two where the name says so.
//   build/release/bin/kernels_bench --benchmark_filter=Step
#include <benchmark/benchmark.h>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

const OpTable& ops() {
  static const OpTable* const kTable = cpu_ops().value();
  return *kTable;
}

struct Product {
  Product(DType type, std::int64_t rows, std::int64_t cols, std::int64_t n)
      : weight(type, rows, cols, random_rows(type, rows, cols, 1)),
        x(random_floats(static_cast<std::size_t>(n * cols), 2)),
        y(static_cast<std::size_t>(n * rows)),
        workspace(Arena::make(matmul_workspace_bytes(n, {cols, cols})).value()) {
    output = {&weight.weight, y.data(), 0};
    op.x = x.data();
    op.n = n;
    op.outputs = {&output, 1};
    op.workspace = {workspace.take(matmul_workspace_bytes(n, {cols, cols})),
                    matmul_workspace_bytes(n, {cols, cols})};
  }
  PackedWeight weight;
  std::vector<float> x, y;
  Arena workspace;
  MatMulOutput output;
  MatMul op;
};

void matmul(benchmark::State& state, DType type) {
  const std::int64_t rows = 1024, cols = 512, n = state.range(0);
  Product product(type, rows, cols, n);
  for (auto _ : state)
    ops().matmul({}, product.op);
  const double steps = static_cast<double>(state.iterations());
  state.counters["GMAC/s"] = benchmark::Counter(steps * static_cast<double>(rows * cols * n) * 1e-9,
                                                benchmark::Counter::kIsRate);
  state.counters["weights GB/s"] =
      benchmark::Counter(steps * static_cast<double>(Weight::packed_bytes(type, rows, cols)) * 1e-9,
                         benchmark::Counter::kIsRate);
}

/// Nearly only integer products: 8 tokens on weights that stay in the L1 cache. Two threads against
/// one say how far the machine's cores scale; two hardware threads of one core hardly do.
void integer_dots(benchmark::State& state) {
  const std::int64_t rows = 256, cols = 64, n = 8;
  Product product(DType::Q8_0, rows, cols, n);
  for (auto _ : state)
    ops().matmul({}, product.op);
  state.counters["GMAC/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * rows * cols * n) * 1e-9,
                         benchmark::Counter::kIsRate);
}

/// One token on 256 MiB of weights: no cache holds them, so this is the speed of decode.
void decode_from_memory(benchmark::State& state, DType type) {
  const std::int64_t cols = 4096, source_rows = 256;
  const auto row_bytes = static_cast<std::int64_t>(Weight::packed_bytes(type, 16, cols)) / 16;
  const std::int64_t rows = (std::int64_t{256} << 20) / row_bytes / source_rows * source_rows;
  const std::size_t bytes = Weight::packed_bytes(type, rows, cols);
  Arena memory = Arena::make(bytes).value();
  std::byte* packed = memory.take(bytes);
  const Weight weight{type, rows, cols, packed};
  const std::vector<std::byte> source = random_rows(type, source_rows, cols, 1);
  for (std::int64_t row = 0; row < rows; row += source_rows)
    pack_rows(weight, packed, row, source_rows, source.data());
  const std::vector<float> x = random_floats(static_cast<std::size_t>(cols), 2);
  std::vector<float> y(static_cast<std::size_t>(rows));
  Arena workspace = Arena::make(matmul_workspace_bytes(1, {cols, cols})).value();
  const MatMulOutput output{&weight, y.data(), 0};
  MatMul op{x.data(), 0, 1, {&output, 1}, {}};
  op.workspace = {workspace.take(matmul_workspace_bytes(1, {cols, cols})),
                  matmul_workspace_bytes(1, {cols, cols})};
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state)
    ops().matmul({&pool}, op);
  state.counters["weights GB/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(bytes) * 1e-9,
      benchmark::Counter::kIsRate);
}

// All ops of the bundled model's step but the embedding lookup, on random weights: 6 recurrent and
// 2 attention layers of width 512, logits of the last row.
class Step {
 public:
  Step(DType type, std::int64_t n, std::int64_t depth) : n_(n), depth_(depth) {
    for (int i = 0; i < 8; ++i) {
      const bool attention = i % 4 == 3;
      Layer layer;
      const auto add = [&](std::int64_t rows, std::int64_t cols) {
        layer.weights.push_back(pack(type, rows, cols));
      };
      if (attention) {
        for (const std::int64_t rows : {2048, 256, 256})
          add(rows, 512);
        add(512, 1024);
      } else {
        for (const std::int64_t rows : {1280, 768, 6, 6})
          add(rows, 512);
        add(512, 768);
      }
      for (const std::int64_t rows : {1024, 1024})
        add(rows, 512);
      add(512, 1024);
      layer.attention = attention;
      for (std::int64_t p = 0; attention && p < depth + n; p += kKvBlockPositions) {
        layer.memory.push_back(Arena::make(kv_block_bytes(kShape)).value());
        layer.blocks.push_back(layer.memory.back().take(kv_block_bytes(kShape)));
      }
      layer.state.resize(attention ? 0 : 6 * 128 * 128);
      layer.tail.resize(attention ? 0 : 3 * 1280);
      layers_.push_back(std::move(layer));
    }
    head_ = pack(type, 4096, 512);
    for (std::vector<float>* v : {&x_, &h_, &a_, &b_, &c_, &d_})
      v->resize(static_cast<std::size_t>(n * 2048));
    x_ = random_floats(x_.size(), 3);
    gates_.resize(static_cast<std::size_t>(n * 24), 0.5f);
    norm_.assign(1024, 1.0f);
    taps_ = random_floats(4 * 1280, 4, 0.3f);
    table_.resize(static_cast<std::size_t>(n * 64));
    rope_table(depth, n, 64, 1e7, table_.data());
    logits_.resize(4096);
    workspace_ = Arena::make(matmul_workspace_bytes(n, {1024, 1024})).value();
    scratch_ = {workspace_.take(matmul_workspace_bytes(n, {1024, 1024})),
                matmul_workspace_bytes(n, {1024, 1024})};
  }

  void run(const Stream& stream) {
    for (Layer& layer : layers_) {
      ops().rms_norm(stream, {x_.data(), norm_.data(), h_.data(), n_, 512});
      if (layer.attention) {
        attention(stream, layer);
      } else {
        recurrent(stream, layer);
      }
      ops().add(stream, {x_.data(), h_.data(), x_.data(), n_ * 512});
      ops().rms_norm(stream, {x_.data(), norm_.data(), h_.data(), n_, 512});
      const std::size_t at = layer.weights.size() - 3;
      multiply(stream, layer, h_.data(), n_, {{at, a_.data()}, {at + 1, b_.data()}});
      ops().swiglu(stream, {a_.data(), b_.data(), a_.data(), n_, 1024});
      multiply(stream, layer, a_.data(), n_, {{at + 2, h_.data()}});
      ops().add(stream, {x_.data(), h_.data(), x_.data(), n_ * 512});
      // Random weights have no reason to keep the residual small.
      for (std::size_t i = 0; i < static_cast<std::size_t>(n_ * 512); i += 512)
        x_[i] = x_[i] > 10 || x_[i] < -10 ? 1.0f : x_[i];
    }
    ops().rms_norm(stream, {x_.data() + (n_ - 1) * 512, norm_.data(), h_.data(), 1, 512});
    const MatMulOutput output{&head_, logits_.data(), 0};
    MatMul op{h_.data(), 0, 1, {&output, 1}, scratch_};
    ops().matmul(stream, op);
  }

 private:
  static constexpr KvShape kShape{KvElement::f16, 1, 256};
  struct Layer {
    bool attention;
    std::vector<Weight> weights;
    std::vector<Arena> memory;
    std::vector<std::byte*> blocks;
    std::vector<float> state, tail;
  };

  Weight pack(DType type, std::int64_t rows, std::int64_t cols) {
    std::byte* memory = weights_.take(Weight::packed_bytes(type, rows, cols));
    const Weight weight{type, rows, cols, memory};
    pack_rows(weight, memory, 0, rows,
              random_rows(type, rows, cols, static_cast<std::uint32_t>(rows)).data());
    return weight;
  }

  void multiply(const Stream& stream, Layer& layer, const float* x, std::int64_t n,
                std::initializer_list<std::pair<std::size_t, float*>> targets) {
    MatMulOutput outputs[8];
    std::size_t count = 0;
    for (const auto& [index, y] : targets)
      outputs[count++] = {&layer.weights[index], y, 0};
    ops().matmul(stream, {x, 0, n, {outputs, count}, scratch_});
  }

  void recurrent(const Stream& stream, Layer& layer) {
    float* decay = gates_.data();
    float* beta = decay + n_ * 6;
    float* alpha_in = beta + n_ * 6;
    float* beta_in = alpha_in + n_ * 6;
    multiply(stream, layer, h_.data(), n_,
             {{0, a_.data()}, {1, b_.data()}, {2, beta_in}, {3, alpha_in}});
    ops().conv_silu(stream, {a_.data(), taps_.data(), layer.tail.data(), c_.data(), n_, 1280});
    ops().l2_norm(stream, {c_.data(), n_, 2, 128, 1280, 1e-6f, 0.088388f});
    ops().l2_norm(stream, {c_.data() + 256, n_, 2, 128, 1280});
    ops().gated_delta_gates(stream,
                            {alpha_in, beta_in, norm_.data(), norm_.data(), decay, beta, n_, 6});
    for (std::int64_t i = 0; i < n_ * 6; ++i)
      decay[i] = 0.9f;
    ops().gated_delta(stream, {c_.data(), c_.data() + 256, c_.data() + 512, 1280, decay, beta,
                               layer.state.data(), d_.data(), n_, 2, 6, 128, 128});
    ops().gated_rms_norm(stream, {d_.data(), norm_.data(), b_.data(), d_.data(), n_ * 6, 128});
    multiply(stream, layer, d_.data(), n_, {{4, h_.data()}});
  }

  void attention(const Stream& stream, Layer& layer) {
    multiply(stream, layer, h_.data(), n_, {{0, a_.data()}, {1, b_.data()}, {2, c_.data()}});
    RmsNorm q{a_.data(), norm_.data(), a_.data(), n_ * 4, 256};
    q.x_stride = q.y_stride = 512;
    ops().rms_norm(stream, q);
    ops().rms_norm(stream, {b_.data(), norm_.data(), b_.data(), n_, 256});
    ops().rope(stream, {a_.data(), table_.data(), n_, 4, 64, 512, 2048});
    ops().rope(stream, {b_.data(), table_.data(), n_, 1, 64, 256, 256});
    const std::span<std::byte* const> blocks{layer.blocks.data(), layer.blocks.size()};
    ops().kv_write(stream, {kShape, blocks, depth_, n_, b_.data(), c_.data()});
    Attention op;
    op.shape = kShape;
    op.blocks = {layer.blocks.data(), layer.blocks.size()};
    op.first_position = depth_;
    op.n = n_;
    op.heads = 4;
    op.q = a_.data();
    op.q_head_stride = 512;
    op.y = d_.data();
    ops().attention(stream, op);
    SigmoidGate gate{d_.data(), a_.data() + 256, d_.data(), n_ * 4, 256};
    gate.gate_stride = 512;
    ops().sigmoid_gate(stream, gate);
    multiply(stream, layer, d_.data(), n_, {{3, h_.data()}});
  }

  std::int64_t n_, depth_;
  Arena weights_ = Arena::make(std::size_t{128} << 20).value();
  std::vector<Layer> layers_;
  Weight head_;
  std::vector<float> x_, h_, a_, b_, c_, d_, gates_, norm_, taps_, table_, logits_;
  Arena workspace_;
  std::span<std::byte> scratch_;
};

void step(benchmark::State& state, DType type) {
  const std::int64_t n = state.range(0);
  Step model(type, n, 0);
  ThreadPool pool(static_cast<int>(state.range(1)));
  for (auto _ : state)
    model.run({&pool});
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * n), benchmark::Counter::kIsRate);
}

void delta_rule(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const auto rows = static_cast<std::size_t>(n);
  const std::vector<float> qkv = random_floats(rows * 1280, 1, 0.1f);
  const std::vector<float> decay(rows * 6, 0.9f), beta(rows * 6, 0.5f);
  std::vector<float> s(6 * 128 * 128), o(rows * 768);
  for (auto _ : state)
    ops().gated_delta({}, {qkv.data(), qkv.data() + 256, qkv.data() + 512, 1280, decay.data(),
                           beta.data(), s.data(), o.data(), n, 2, 6, 128, 128});
  state.SetItemsProcessed(state.iterations() * n);
}

struct KvLayer {
  KvLayer(KvElement element, std::int64_t positions) : shape{element, 1, 256} {
    for (std::int64_t p = 0; p < positions; p += kKvBlockPositions) {
      memory.push_back(Arena::make(kv_block_bytes(shape)).value());
      blocks.push_back(memory.back().take(kv_block_bytes(shape)));
    }
    k = random_floats(static_cast<std::size_t>(positions * 256), 2);
    write = {shape, {blocks.data(), blocks.size()}, 0, positions, k.data(), k.data()};
    ops().kv_write({}, write);
  }
  KvShape shape;
  std::vector<Arena> memory;
  std::vector<std::byte*> blocks;
  std::vector<float> k;
  KvWrite write;
};

void attend(benchmark::State& state, KvElement element) {
  const std::int64_t n = state.range(0), depth = state.range(1), heads = state.range(2);
  const KvLayer layer(element, depth + n);
  const std::vector<float> q = random_floats(static_cast<std::size_t>(n * heads) * 256, 1);
  std::vector<float> y(q.size());
  Attention op;
  op.shape = layer.shape;
  op.blocks = {layer.blocks.data(), layer.blocks.size()};
  op.first_position = depth;
  op.n = n;
  op.heads = heads;
  op.q = q.data();
  op.y = y.data();
  for (auto _ : state)
    ops().attention({}, op);
  state.SetItemsProcessed(state.iterations() * n);
}

void write_kv(benchmark::State& state, KvElement element) {
  const KvLayer layer(element, state.range(0));
  for (auto _ : state)
    ops().kv_write({}, layer.write);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void convolution(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::vector<float> x = random_floats(static_cast<std::size_t>(n) * 1280, 1);
  const std::vector<float> taps = random_floats(4 * 1280, 2);
  std::vector<float> tail(3 * 1280), y(x.size());
  for (auto _ : state)
    ops().conv_silu({}, {x.data(), taps.data(), tail.data(), y.data(), n, 1280});
  state.SetItemsProcessed(state.iterations() * n);
}

void delta_gates(benchmark::State& state) {
  const std::int64_t n = state.range(0), heads = 6;
  const auto size = static_cast<std::size_t>(n * heads);
  const std::vector<float> a = random_floats(size, 1), b = random_floats(size, 2);
  const std::vector<float> ssm_a(static_cast<std::size_t>(heads), -1.0f);
  const std::vector<float> ssm_dt(static_cast<std::size_t>(heads), 0.5f);
  std::vector<float> decay(size), beta(size);
  for (auto _ : state)
    ops().gated_delta_gates(
        {}, {a.data(), b.data(), ssm_a.data(), ssm_dt.data(), decay.data(), beta.data(), n, heads});
  state.SetItemsProcessed(state.iterations() * n);
}

// The bundled model has no mixture: 8 of 128 experts, as the 30B ones of the family.
constexpr std::int64_t kExperts = 128, kUsed = 8;

void route(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::vector<float> logits = random_floats(static_cast<std::size_t>(n * kExperts), 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n * kUsed));
  std::vector<float> weights(ids.size());
  for (auto _ : state)
    ops().route({}, {logits.data(), ids.data(), weights.data(), n, kExperts, kUsed});
  state.SetItemsProcessed(state.iterations() * n);
}

/// With a shared expert.
void mix(benchmark::State& state) {
  const std::int64_t n = state.range(0), cols = 512;
  const auto rows = static_cast<std::size_t>(n * kUsed), width = static_cast<std::size_t>(cols);
  const std::vector<float> x = random_floats(rows * width, 1);
  std::vector<std::int32_t> slots(rows);
  for (std::size_t i = 0; i < rows; ++i)  // an expert's rows lie together
    slots[i] = static_cast<std::int32_t>(i % kUsed * (rows / kUsed) + i / kUsed);
  const std::vector<float> weights(rows, 1.0f / kUsed);
  const std::vector<float> shared = random_floats(static_cast<std::size_t>(n) * width, 2);
  const std::vector<float> gate_x = random_floats(static_cast<std::size_t>(n) * width, 3);
  const std::vector<float> gate_w = random_floats(width, 4);
  std::vector<float> y(shared.size());
  for (auto _ : state)
    ops().mix({}, {x.data(), slots.data(), weights.data(), y.data(), n, kUsed, cols, shared.data(),
                   gate_x.data(), gate_w.data()});
  state.SetItemsProcessed(state.iterations() * n);
}

/// The row-wise ops on [n, 512].
void row_op(benchmark::State& state, int which) {
  const std::int64_t n = state.range(0), cols = 512;
  std::vector<float> a = random_floats(static_cast<std::size_t>(n * cols), 1), b = a, y = a;
  const std::vector<float> w(static_cast<std::size_t>(cols), 1.0f);
  std::vector<float> table(static_cast<std::size_t>(n) * 64);
  rope_table(0, n, 64, 1e7, table.data());
  for (auto _ : state) {
    switch (which) {
      case 0:
        ops().rms_norm({}, {a.data(), w.data(), y.data(), n, cols});
        break;
      case 1:
        ops().gated_rms_norm({}, {a.data(), w.data(), b.data(), y.data(), n * 4, 128});
        break;
      case 2:
        ops().l2_norm({}, {y.data(), n, 4, 128});
        break;
      case 3:
        ops().add({}, {a.data(), b.data(), y.data(), n * cols});
        break;
      case 4:
        ops().swiglu({}, {a.data(), b.data(), y.data(), n, cols});
        break;
      case 5:
        ops().sigmoid_gate({}, {a.data(), b.data(), y.data(), n, cols});
        break;
      case 6:
        ops().rope({}, {y.data(), table.data(), n, 2, 64, 256, cols});
        break;
    }
  }
  state.SetItemsProcessed(state.iterations() * n);
}

void decode_rows(benchmark::State& state, DType type) {
  const PackedWeight packed(type, 64, 512, random_rows(type, 64, 512, 1));
  std::vector<float> out(512);
  std::int64_t row = 0;
  for (auto _ : state)
    packed.weight.decode_row(++row % 64, out.data());
}

}  // namespace
}  // namespace ponder::kernels

int main(int argc, char** argv) {
  using namespace ponder::kernels;
  for (const FormatInfo& info : kFormats) {
    const std::string name(info.name);
    const DType type = info.type;
    benchmark::RegisterBenchmark(("MatMul/" + name).c_str(),
                                 [type](benchmark::State& s) { matmul(s, type); })
        ->Arg(1)
        ->Arg(4)
        ->Arg(512);
    benchmark::RegisterBenchmark(("Step/" + name).c_str(),
                                 [type](benchmark::State& s) { step(s, type); })
        ->ArgNames({"tokens", "threads"})
        ->Args({1, 1})
        ->Args({512, 1})
        ->Args({1, 2})
        ->Args({512, 2})
        ->UseRealTime();
    benchmark::RegisterBenchmark(("DecodeRow/" + name).c_str(),
                                 [type](benchmark::State& s) { decode_rows(s, type); });
  }
  benchmark::RegisterBenchmark("IntegerDots", integer_dots)->Threads(1)->Threads(2)->UseRealTime();
  for (const DType type : {DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q8_0})
    benchmark::RegisterBenchmark(("DecodeFromMemory/" + std::string(format(type).name)).c_str(),
                                 [type](benchmark::State& s) { decode_from_memory(s, type); })
        ->ArgName("threads")
        ->Arg(1)
        ->Arg(2)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  benchmark::RegisterBenchmark("GatedDelta", delta_rule)->Arg(1)->Arg(512);
  benchmark::RegisterBenchmark("GatedDeltaGates", delta_gates)->Arg(1)->Arg(512);
  benchmark::RegisterBenchmark("Convolution", convolution)->Arg(1)->Arg(512);
  benchmark::RegisterBenchmark("Route", route)->Arg(1)->Arg(512);
  benchmark::RegisterBenchmark("Mix", mix)->Arg(1)->Arg(512);
  constexpr std::pair<const char*, KvElement> kElements[] = {{"f32", KvElement::f32},
                                                             {"f16", KvElement::f16},
                                                             {"q8_0", KvElement::q8_0},
                                                             {"r4", KvElement::r4}};
  for (const auto& [name, element] : kElements) {
    auto* row = benchmark::RegisterBenchmark((std::string("Attention/") + name).c_str(),
                                             [e = element](benchmark::State& s) { attend(s, e); });
    row->ArgNames({"tokens", "depth", "heads"});
    for (const std::int64_t heads : {4, 6}) {
      for (const std::int64_t depth : {1024, 8192, 32768})
        row->Args({1, depth, heads});
      row->Args({512, 0, heads});
      row->Args({512, 4096, heads});
    }
    benchmark::RegisterBenchmark((std::string("KvWrite/") + name).c_str(),
                                 [e = element](benchmark::State& s) { write_kv(s, e); })
        ->Arg(1)
        ->Arg(512);
  }
  constexpr const char* kRowOps[] = {"RmsNorm", "GatedRmsNorm", "L2Norm", "Add",
                                     "SwiGlu",  "SigmoidGate",  "Rope"};
  for (int i = 0; i < 7; ++i)
    benchmark::RegisterBenchmark(kRowOps[i], [i](benchmark::State& s) { row_op(s, i); })
        ->Arg(1)
        ->Arg(512);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
