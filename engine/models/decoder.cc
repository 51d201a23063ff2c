// The forward pass of every decoder, its trials, guesses and snapshots, on the CPU's ops.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <system_error>

#include "engine/base/check.h"
#include "engine/models/decoder_load.h"
#include "engine/models/decoder_snapshot.h"
#include "engine/models/draft_layer.h"

namespace ponder::models {
namespace {

using kernels::Arena;

/// Tells the sequences of one model from those of another.
std::uint64_t next_identity() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

class Decoder final : public Model {
 public:
  Decoder(DecoderPlan plan, const kernels::OpTable& ops)
      : config_(std::move(plan.config)),
        options_(plan.options),
        ops_(ops),
        identity_(next_identity()),
        pool_(options_.threads),
        stream_{&pool_} {}

  Result<void> load_weights(const artifact::Gguf& file, const DecoderPlan& plan);

  std::int32_t vocab() const override { return static_cast<std::int32_t>(config_.vocab); }
  std::int64_t n_ctx() const override { return options_.n_ctx; }
  std::int64_t n_ctx_train() const override { return config_.n_ctx_train; }
  std::int64_t chunk() const override { return options_.chunk; }
  int threads() const override { return options_.threads; }
  std::uint64_t weight_bytes() const override { return step_bytes_; }
  std::string device() const override { return "cpu"; }
  bool drafts() const override { return options_.drafts; }
  std::uint64_t page_bytes() const override { return layout_.kv.page_bytes(); }
  std::uint64_t sequence_bytes() const override { return layout_.state_bytes(); }
  std::unique_ptr<SequenceState> new_sequence() const override {
    return std::make_unique<DecoderSequence>(layout_, identity_);
  }
  Result<void> forward(std::span<const StepPart> parts, std::span<float> logits) override;
  void keep(SequenceState& sequence, std::int64_t rows) override;
  Result<void> draft(std::span<const DraftPart> parts, std::span<float> logits) override;
  Result<std::shared_ptr<const Snapshot>> save(SequenceState& sequence) override;
  Result<std::shared_ptr<const Snapshot>> to_host(const Snapshot& snapshot) override;
  Result<void> restore(SequenceState& sequence, const Snapshot& snapshot) override;

 private:
  DecoderSequence& own(SequenceState* sequence) const;
  const DecoderSnapshot& own(const Snapshot& snapshot) const;
  LayerStep step(std::span<const RowRange> parts, std::int64_t rows) const {
    return {config_, ops_, stream_, scratch_, parts, rows};
  }
  Result<void> check_step(std::span<const StepPart> parts, std::span<const float> logits) const;
  Result<void> check_drafts(std::span<const DraftPart> parts, std::span<const float> logits) const;
  Result<void> check_id(std::int32_t id) const;
  void layers(const LayerStep& step);
  void embed(std::span<const StepPart> parts);
  void finish(std::span<const StepPart> parts, std::span<float> logits);
  /// Room in the draft layer's cache for the unread rows whose next token is known.
  Result<void> prepare_flush(DecoderSequence& sequence);
  /// Brings those rows of all `flushed_` there.
  void flush();

  DecoderConfig config_;
  LoadOptions options_;
  const kernels::OpTable& ops_;
  std::uint64_t identity_;
  kernels::ThreadPool pool_;
  kernels::Stream stream_;
  SequenceLayout layout_;
  Arena weight_arena_, scratch_arena_;
  std::uint64_t step_bytes_ = 0;
  DecoderWeights weights_;
  Scratch scratch_;
  // Of the step that runs; kept so that a step allocates nothing.
  std::vector<RowRange> rows_;
  DraftBatch batch_;
  std::vector<DecoderSequence*> flushed_;
};

Result<void> Decoder::load_weights(const artifact::Gguf& file, const DecoderPlan& plan) {
  layout_ = {&config_, plan.kv_layout(), options_.n_ctx, options_.chunk, options_.drafts};
  const std::vector<WeightSlot> slots =
      decoder_slots(config_, weights_, plan.with_nextn, options_.drafts);
  step_bytes_ = decoder_step_bytes(file, plan);
  TRY(weight_arena_, Arena::make(slot_bytes(file, slots)));
  const kernels::MatMulColumns columns = slot_columns(file, slots);
  TRY(scratch_arena_,
      Arena::make(Scratch::bytes(config_, columns, options_.chunk, options_.drafts)));
  TRY_VOID(load_slots(file, slots, weight_arena_, stream_));
  scratch_.bind(scratch_arena_, config_, columns, options_.chunk, options_.drafts);
  rows_.reserve(static_cast<std::size_t>(options_.chunk));
  if (!options_.drafts) return {};
  flushed_.reserve(static_cast<std::size_t>(options_.chunk));
  batch_.reserve(options_.chunk);
  return {};
}

DecoderSequence& Decoder::own(SequenceState* sequence) const {
  auto* const out = dynamic_cast<DecoderSequence*>(sequence);
  CHECK_MSG(out != nullptr && out->model() == identity_, "the sequence belongs to another model");
  return *out;
}

const DecoderSnapshot& Decoder::own(const Snapshot& snapshot) const {
  const auto* const out = dynamic_cast<const DecoderSnapshot*>(&snapshot);
  CHECK_MSG(out != nullptr && out->model() == identity_, "the snapshot belongs to another model");
  return *out;
}

Result<void> Decoder::check_id(std::int32_t id) const {
  if (id >= 0 && id < config_.vocab) return {};
  return fail(ErrorCode::bad_request,
              fmt::format("Token id {} is outside of the vocabulary of {}.", id, config_.vocab));
}

Result<void> Decoder::check_step(std::span<const StepPart> parts,
                                 std::span<const float> logits) const {
  std::int64_t rows = 0, logit_rows = 0;
  bool fits = !parts.empty() && parts.size() <= static_cast<std::size_t>(options_.chunk);
  for (std::size_t i = 0; fits && i < parts.size(); ++i) {
    const StepPart& part = parts[i];
    const auto n = static_cast<std::int64_t>(part.ids.size());
    fits = n >= 1 && n <= options_.chunk && part.logit_rows >= 0 && part.logit_rows <= n &&
           (!part.trial || n <= kMaxTrialRows);
    rows += n;
    logit_rows += part.logit_rows;
  }
  if (!fits || rows > options_.chunk ||
      static_cast<std::int64_t>(logits.size()) != logit_rows * config_.vocab)
    return fail(ErrorCode::internal,
                fmt::format("A step of {} sequences with {} tokens and {} logit rows does not fit "
                            "chunks of {} (and trials of {}).",
                            parts.size(), rows, logit_rows, options_.chunk, kMaxTrialRows));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const DecoderSequence& sequence = own(parts[i].sequence);
    CHECK_MSG(sequence.trial() == 0, "rows are on trial: keep() comes first");
    for (std::size_t j = 0; j < i; ++j)
      CHECK_MSG(parts[j].sequence != parts[i].sequence, "a sequence is in a step once");
    if (sequence.length() + static_cast<std::int64_t>(parts[i].ids.size()) > options_.n_ctx)
      return fail(ErrorCode::context_length_exceeded,
                  fmt::format("{} tokens after {} do not fit the context of {}.",
                              parts[i].ids.size(), sequence.length(), options_.n_ctx));
    for (const std::int32_t id : parts[i].ids)
      TRY_VOID(check_id(id));
  }
  return {};
}

Result<void> Decoder::forward(std::span<const StepPart> parts, std::span<float> logits) {
  TRY_VOID(check_step(parts, logits));
  rows_.clear();
  flushed_.clear();
  std::int64_t rows = 0;
  for (const StepPart& part : parts) {
    DecoderSequence& sequence = own(part.sequence);
    const auto n = static_cast<std::int64_t>(part.ids.size());
    if (options_.drafts && sequence.unread_rows() + n > options_.chunk + 1)
      TRY_VOID(prepare_flush(sequence));
    TRY_VOID(sequence.prepare(n, part.trial));
    rows_.push_back({&sequence, rows, n, sequence.length(), part.trial});
    rows += n;
  }
  flush();
  embed(parts);
  layers(step(rows_, rows));
  finish(parts, logits);
  return {};
}

void Decoder::embed(std::span<const StepPart> parts) {
  for (std::size_t p = 0; p < parts.size(); ++p)
    stream_.parallel_for(rows_[p].n, [&](std::int64_t i) {
      weights_.token_embd.decode_row(parts[p].ids[static_cast<std::size_t>(i)],
                                     scratch_.x + (rows_[p].first + i) * config_.hidden);
    });
}

void Decoder::layers(const LayerStep& step) {
  rope_rows(step, weights_.rope_divisors);
  std::int64_t recurrent = 0, attending = 0;
  for (std::size_t i = 0; i < config_.layers.size(); ++i) {
    const DecoderLayer& layer = weights_.layers[i];
    step.rms_norm(scratch_.x, layer.mixer_norm, scratch_.norm, step.rows);
    switch (config_.layers[i].mixer) {
      case Mixer::gated_delta_net:
        delta_net_layer(step, layer.delta_net, recurrent++);
        break;
      case Mixer::attention:
        attention_layer(step, layer.attention, attending++);
        break;
    }
    step.add_out();
    step.rms_norm(scratch_.x, layer.feed_forward_norm, scratch_.norm, step.rows);
    feed_forward(step, config_.layers[i].feed_forward, layer);
    step.add_out();
  }
}

/// The wanted logits, hidden rows for the draft layer, and the sequences' new lengths.
void Decoder::finish(std::span<const StepPart> parts, std::span<float> logits) {
  const LayerStep any = step(rows_, 0);
  std::int64_t wanted = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const RowRange& range = rows_[p];
    const float* x = scratch_.x + range.first * config_.hidden;
    const std::int64_t count = parts[p].logit_rows;
    any.rms_norm(x + (range.n - count) * config_.hidden, weights_.output_norm,
                 scratch_.norm + wanted * config_.hidden, count);
    wanted += count;
    if (options_.drafts)
      any.rms_norm(
          x, weights_.output_norm,
          range.trial ? range.sequence->trial_hidden_rows() : range.sequence->next_hidden_rows(),
          range.n);
  }
  if (wanted > 0) any.matmul<1>(scratch_.norm, wanted, {{{&weights_.head(), logits.data()}}});
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].trial)
      rows_[p].sequence->begin_trial(parts[p].ids);
    else
      rows_[p].sequence->advance(parts[p].ids);
  }
}

void Decoder::keep(SequenceState& state, std::int64_t rows) {
  DecoderSequence& sequence = own(&state);
  CHECK(rows >= 0 && rows <= sequence.trial());
  const LayerStep any = step({}, 0);
  if (rows > 0)
    for (std::int64_t i = 0; i < layout_.recurrent_layers(); ++i)
      keep_delta_net(any, sequence, i, rows);
  sequence.end_trial(rows);
}

Result<void> Decoder::prepare_flush(DecoderSequence& sequence) {
  TRY_VOID(sequence.kv().make_writable(sequence.unread(), sequence.length() - 1));
  flushed_.push_back(&sequence);
  return {};
}

void Decoder::flush() {
  const auto run = [&] {
    if (batch_.rows > 0) draft_entries(step(batch_.parts, batch_.rows), weights_, batch_);
    batch_.clear();
  };
  batch_.clear();
  for (DecoderSequence* sequence : flushed_) {
    const auto next = sequence->unread_ids().subspan(1);
    for (std::size_t at = 0; at < next.size();) {
      if (batch_.rows == options_.chunk) run();
      const auto n =
          std::min(next.size() - at, static_cast<std::size_t>(options_.chunk - batch_.rows));
      const auto first = static_cast<std::int64_t>(at);
      batch_.add(*sequence, sequence->unread() + first,
                 sequence->hidden_rows() + first * config_.hidden, next.subspan(at, n));
      at += n;
    }
  }
  run();
  for (DecoderSequence* sequence : flushed_)
    sequence->drop_unread(sequence->unread_rows() - 1);
  flushed_.clear();
}

Result<void> Decoder::check_drafts(std::span<const DraftPart> parts,
                                   std::span<const float> logits) const {
  CHECK_MSG(options_.drafts, "the model was loaded without drafts");
  if (parts.empty() || parts.size() > static_cast<std::size_t>(options_.chunk) ||
      logits.size() != parts.size() * static_cast<std::size_t>(config_.vocab))
    return fail(ErrorCode::internal,
                fmt::format("Guesses for {} sequences do not fit chunks of {}.", parts.size(),
                            options_.chunk));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const DecoderSequence& sequence = own(parts[i].sequence);
    CHECK_MSG(sequence.trial() == 0, "rows are on trial: keep() comes first");
    for (std::size_t j = 0; j < i; ++j)
      CHECK_MSG(parts[j].sequence != parts[i].sequence, "a sequence is in a step once");
    if (sequence.length() == 0)
      return fail(ErrorCode::internal, "An empty sequence gives nothing to guess from.");
    if (sequence.length() + sequence.drafted() > options_.n_ctx)
      return fail(ErrorCode::context_length_exceeded,
                  fmt::format("A guess after {} tokens does not fit the context of {}.",
                              sequence.length() + sequence.drafted(), options_.n_ctx));
    TRY_VOID(check_id(parts[i].id));
  }
  return {};
}

Result<void> Decoder::draft(std::span<const DraftPart> parts, std::span<float> logits) {
  TRY_VOID(check_drafts(parts, logits));
  flushed_.clear();
  std::int64_t rows = 0;
  for (const DraftPart& part : parts) {
    DecoderSequence& sequence = own(part.sequence);
    const bool first = sequence.drafted() == 0;
    const std::int64_t end = sequence.length() + sequence.drafted();
    TRY_VOID(sequence.kv().make_writable(first ? sequence.unread() : end - 1, end));
    rows += first ? sequence.unread_rows() : 1;
  }
  if (rows > options_.chunk) {  // the rows before the last of each sequence first
    for (const DraftPart& part : parts)
      if (own(part.sequence).drafted() == 0) flushed_.push_back(&own(part.sequence));
    flush();
  }
  batch_.clear();
  for (const DraftPart& part : parts) {
    DecoderSequence& sequence = own(part.sequence);
    const std::span<const std::int32_t> id(&part.id, 1);
    if (sequence.drafted() > 0) {
      batch_.add(sequence, sequence.length() - 1 + sequence.drafted(), sequence.draft_hidden(), id);
    } else {
      batch_.add(sequence, sequence.unread(), sequence.hidden_rows(),
                 sequence.unread_ids().subspan(1));
      batch_.append(part.id);
    }
  }
  const LayerStep all = step(batch_.parts, batch_.rows);
  draft_entries(all, weights_, batch_);
  draft_outputs(all, weights_, batch_);
  all.matmul<1>(scratch_.norm, static_cast<std::int64_t>(parts.size()),
                {{{&weights_.head(), logits.data()}}});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    DecoderSequence& sequence = *batch_.parts[i].sequence;
    // All but the last row's entry are made of what was read and stay.
    if (sequence.drafted() == 0) sequence.drop_unread(sequence.unread_rows() - 1);
    std::copy_n(scratch_.norm + static_cast<std::int64_t>(i) * config_.hidden, config_.hidden,
                sequence.draft_hidden());
    sequence.set_drafted(sequence.drafted() + 1);
  }
  return {};
}

Result<std::shared_ptr<const Snapshot>> Decoder::save(SequenceState& state) {
  DecoderSequence& sequence = own(&state);
  CHECK_MSG(sequence.trial() == 0, "rows are on trial: keep() comes first");
  flushed_.clear();
  if (sequence.unread_rows() > 1) {
    TRY_VOID(prepare_flush(sequence));
    flush();
  }
  return DecoderSnapshot::take(sequence, config_.hidden);
}

Result<std::shared_ptr<const Snapshot>> Decoder::to_host(const Snapshot& snapshot) {
  return own(snapshot).to_host();
}

Result<void> Decoder::restore(SequenceState& sequence, const Snapshot& snapshot) {
  return own(snapshot).restore(own(&sequence));
}

}  // namespace

Result<std::unique_ptr<Model>> load_decoder(const artifact::Gguf& file, DecoderPlan plan) {
  TRY(const kernels::OpTable* const ops, kernels::cpu_ops());
  std::unique_ptr<Decoder> model;
  try {
    model = std::make_unique<Decoder>(plan, *ops);
  } catch (const std::system_error&) {
    return fail(ErrorCode::engine_error,
                fmt::format("The system refused {} threads.", plan.options.threads),
                "Use fewer with --threads, or raise the limit on processes.");
  }
  TRY_VOID(model->load_weights(file, plan));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace ponder::models
