#pragma once
// Small random models and weights for tests of the CPU back end.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "device/backend.h"
#include "device/program.h"

namespace gristmill::device::cpu {

/// A weight matrix of random numbers of any compute class, kept in memory.
class RandomWeight final : public WeightSource {
 public:
  RandomWeight(std::string name, int64_t rows, int64_t columns, Encoding encoding, uint32_t seed, float size = 1.0f)
      : WeightSource(std::move(name), rows, columns, encoding, static_cast<size_t>(rows * columns)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, size / std::sqrt(static_cast<float>(columns)));
    const size_t count = static_cast<size_t>(rows * columns);
    if (has_channel_scales(encoding.cls)) {
      const int lowest = encoding.cls == ComputeClass::i4_channel ? -8 : -128;
      for (size_t i = 0; i < count; ++i)
        codes_.push_back(
            static_cast<uint8_t>(lowest + static_cast<int>(random() % static_cast<uint32_t>(-2 * lowest))));
      if (encoding.cls == ComputeClass::f8_float)
        for (uint8_t& code : codes_) code = (code & 0x7f) == 0x7f ? uint8_t{0} : code;  // that would be NaN
      const auto scales = static_cast<size_t>(rows * scales_of_row(encoding, columns));
      for (size_t i = 0; i < scales; ++i)
        channel_scales_.push_back((1.0f + std::fabs(normal(random))) * size / static_cast<float>(-lowest) /
                                  std::sqrt(static_cast<float>(columns)) *
                                  (encoding.input ? encoding.input->scale : 1));
      for (int64_t i = 0; i < rows; ++i) addends_.push_back(static_cast<int32_t>(random() % 4001) - 2000);
      return;
    }
    if (encoding.group != 0) {
      const bool nibbles = encoding.cls == ComputeClass::i4_group;
      const size_t groups = count / static_cast<size_t>(encoding.group);
      for (size_t i = 0; i < count; ++i) codes_.push_back(static_cast<uint8_t>(nibbles ? random() % 16 : random()));
      const float unit = nibbles ? 0.2f : 0.012f;
      for (size_t i = 0; i < groups; ++i) {
        const float scale = unit * (0.5f + std::fabs(normal(random))) * size / std::sqrt(static_cast<float>(columns));
        scales_.push_back(f32_to_f16(scale));
        mins_.push_back(f32_to_f16(-7.5f * scale));
      }
      return;
    }
    for (size_t i = 0; i < count; ++i) {
      const float value = normal(random);
      floats_.push_back(encoding.cls == ComputeClass::f32   ? value
                        : encoding.cls == ComputeClass::f16 ? f16_to_f32(f32_to_f16(value))
                                                            : bf16_to_f32(f32_to_bf16(value)));
    }
  }

  void read_f32(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = first * columns(); i < (first + count) * columns(); ++i) *out++ = value(static_cast<size_t>(i));
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    for (int64_t i = first * columns(); i < (first + count) * columns(); ++i) {
      const float x = floats_[static_cast<size_t>(i)];
      *out++ = encoding().cls == ComputeClass::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
    }
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    const int64_t groups = scales_of_row(encoding(), columns());
    std::memcpy(out.codes, codes_.data() + first * columns(), static_cast<size_t>(count * columns()));
    if (has_channel_scales(encoding().cls)) {
      std::copy_n(channel_scales_.data() + first * groups, count * groups, out.channel_scales);
      if (out.addends != nullptr) std::copy_n(addends_.data() + first, count, out.addends);
      return;
    }
    std::memcpy(out.scales, scales_.data() + first * groups, static_cast<size_t>(count * groups) * 2);
    if (out.mins != nullptr)
      std::memcpy(out.mins, mins_.data() + first * groups, static_cast<size_t>(count * groups) * 2);
  }
  void release() const override { ++released; }

  /// Codes, for tests that want extremes.
  std::vector<uint8_t>& codes() { return codes_; }
  mutable int released = 0;

 private:
  static bool has_channel_scales(ComputeClass cls) { return is_channel_class(cls) || is_byte_class(cls); }
  float value(size_t i) const {
    if (has_channel_scales(encoding().cls)) {
      const auto width = static_cast<size_t>(columns());
      const size_t group = encoding().group == 0 ? 0 : i % width / static_cast<size_t>(encoding().group);
      const auto scales = static_cast<size_t>(scales_of_row(encoding(), columns()));
      return channel_scales_[i / width * scales + group] / (encoding().input ? encoding().input->scale : 1.0f) *
             (encoding().cls == ComputeClass::f8_float ? fp8_e4m3_to_f32(codes_[i])
                                                       : static_cast<float>(static_cast<int8_t>(codes_[i])));
    }
    if (encoding().group == 0) return floats_[i];
    const size_t group = i / static_cast<size_t>(encoding().group);
    const float scale = f16_to_f32(scales_[group]);
    const float min = encoding().has_min ? f16_to_f32(mins_[group]) : 0.0f;
    const int code =
        encoding().cls == ComputeClass::i4_group ? codes_[i] - encoding().zero : static_cast<int8_t>(codes_[i]);
    return std::fma(scale, static_cast<float>(code), min);
  }
  std::vector<uint8_t> codes_;
  std::vector<uint16_t> scales_, mins_;
  std::vector<float> floats_, channel_scales_;
  std::vector<int32_t> addends_;
};

inline constexpr Encoding kQ41{ComputeClass::i4_group, 32, 0, true};
inline constexpr Encoding kQ40{ComputeClass::i4_group, 32, 8, false};
inline constexpr Encoding kQ80{ComputeClass::i8_group, 32, 0, false};
inline constexpr Encoding kQ81{ComputeClass::i8_group, 32, 0, true};
inline constexpr Encoding kW8A8{ComputeClass::i8_channel, 0, 0, false};
inline constexpr Encoding kW8A8Static{ComputeClass::i8_channel, 0, 0, false, StaticInput{0.03f, -7}};
inline constexpr Encoding kW4A8{ComputeClass::i4_channel, 0, 0, false};
inline constexpr Encoding kW4A8Group{ComputeClass::i4_channel, 32, 0, false};
inline constexpr Encoding kW8A16{ComputeClass::i8_float, 0, 0, false};
inline constexpr Encoding kFp8{ComputeClass::f8_float, 0, 0, false};
inline constexpr Encoding kFp8Group{ComputeClass::f8_float, 40, 0, false};
inline constexpr Encoding kF32{ComputeClass::f32, 0, 0, false};
inline constexpr Encoding kF16{ComputeClass::f16, 0, 0, false};
inline constexpr Encoding kBf16{ComputeClass::bf16, 0, 0, false};

struct RandomModel {
  int layers = 2, hidden = 96, heads = 6, kv_heads = 2, head_dim = 16, ffn = 160, vocabulary = 203;
  Encoding query = kQ41, key = kQ40, value = kQ80, output = kBf16, gate = kQ41, up = kQ40, down = kQ81, table = kQ80;
  bool tied = true, biases = true, taps = false, rope = true;
  bool watched = false;       ///< what linears read is watched
  bool cache_scales = false;  ///< numbers known beforehand for an int8 cache
  float last_norm = 1.0f;     ///< size of the last norm's weights
};

inline std::shared_ptr<const Program> random_program(const RandomModel& m) {
  ProgramBuilder builder;
  uint32_t seed = 1;
  const auto matrix = [&](const char* name, int rows, int columns, Encoding encoding) {
    return builder.weight(std::make_shared<RandomWeight>(name, rows, columns, encoding, seed++));
  };
  const auto vector = [&](const char* name, int width) {
    return builder.weight(
        std::make_shared<RandomWeight>(name, 1, width, kF32, seed++, std::sqrt(static_cast<float>(width))));
  };
  const auto linear = [&](const char* name, int rows, int columns, Encoding encoding, bool bias) {
    Linear made{matrix(name, rows, columns, encoding), {}, Collective::none};
    if (bias) made.bias = vector("bias", rows);
    return made;
  };
  Rope rope;
  for (int j = 0; j < m.head_dim / 2; ++j) {
    rope.inv_freq.push_back(static_cast<float>(std::pow(10000.0, -2.0 * j / m.head_dim)));
  }
  if (m.watched) builder.watch_inputs();
  const WeightRef table = matrix("table", m.vocabulary, m.hidden, m.table);
  Value x = builder.embed(table);
  if (m.taps) builder.tap(x, 0);
  for (int layer = 0; layer < m.layers; ++layer) {
    const Norm attention_norm{vector("attention_norm", m.hidden), 1e-5f}, mlp_norm{vector("mlp_norm", m.hidden), 1e-5f};
    const auto qkv = builder.linear(x, attention_norm,
                                    {linear("q", m.heads * m.head_dim, m.hidden, m.query, m.biases),
                                     linear("k", m.kv_heads * m.head_dim, m.hidden, m.key, m.biases),
                                     linear("v", m.kv_heads * m.head_dim, m.hidden, m.value, false)});
    Attention attention;
    attention.heads = m.heads;
    attention.kv_heads = m.kv_heads;
    attention.head_dim = m.head_dim;
    attention.scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
    attention.cache = builder.cache(m.kv_heads, m.head_dim);
    if (m.rope) attention.rope = rope;
    if (m.cache_scales) {
      std::mt19937 random(1000 + static_cast<uint32_t>(layer));  // the weights stay what they are without
      CacheScales scales;
      for (int i = 0; i < m.kv_heads * m.head_dim; ++i) {
        const auto number = [&](int most) { return static_cast<float>(random() % static_cast<uint32_t>(most)); };
        scales.k_scale.push_back(0.02f + number(100) * 2e-4f);
        scales.v_scale.push_back(0.02f + number(100) * 2e-4f);
        scales.k_offset.push_back(number(41) - 20);
        scales.v_offset.push_back(number(41) - 20);
      }
      attention.cache_scales = scales;
    }
    const Value mixed = builder.attention(qkv[0], qkv[1], qkv[2], attention);
    x = builder.residual(
        x, builder.linear(mixed, {}, {linear("o", m.hidden, m.heads * m.head_dim, m.output, m.biases)})[0]);
    const Value inner = builder.linear(
        x, mlp_norm, {linear("gate", m.ffn, m.hidden, m.gate, m.biases), linear("up", m.ffn, m.hidden, m.up, false)},
        Activation::silu_mul)[0];
    x = builder.residual(x, builder.linear(inner, {}, {linear("down", m.hidden, m.ffn, m.down, false)})[0]);
    if (m.taps) builder.tap(x, layer + 1);
  }
  const Norm last{builder.weight(std::make_shared<RandomWeight>("output_norm", 1, m.hidden, kF32, seed++,
                                                                std::sqrt(static_cast<float>(m.hidden)) * m.last_norm)),
                  1e-5f};
  builder.head(x, last, m.tied ? table : matrix("vocabulary", m.vocabulary, m.hidden, m.table));
  return std::make_shared<const Program>(std::move(builder).build());
}

/// Feeds token lists to an Executable in any cuts, each sequence with its own scattered block table.
class Feeder {
 public:
  Feeder(Executable& executable, int vocabulary, int block_size, int num_blocks)
      : executable_(executable), vocabulary_(vocabulary), block_size_(block_size), num_blocks_(num_blocks) {}

  struct Part {
    std::vector<int32_t> ids;
    int context = 0;
    int table = 0;  ///< which block table: sequence number
    bool want_logits = true;
  };
  struct Output {
    std::vector<std::vector<float>> logits;  ///< of every row, in order
    std::vector<int32_t> argmax;
    std::vector<std::vector<float>> taps;
  };

  /// All rows of all parts go through the head.
  Output run(const std::vector<Part>& parts) {
    std::vector<int32_t> ids, rows;
    std::vector<uint8_t> want;
    std::vector<SequenceStep> sequences;
    std::vector<std::vector<int32_t>> tables;
    for (const Part& part : parts) tables.push_back(table(part));
    for (size_t i = 0; i < parts.size(); ++i) {
      sequences.push_back(
          {static_cast<int32_t>(ids.size()), static_cast<int32_t>(parts[i].ids.size()), parts[i].context, tables[i]});
      for (int32_t id : parts[i].ids) {
        rows.push_back(static_cast<int32_t>(ids.size()));
        want.push_back(parts[i].want_logits ? 1 : 0);
        ids.push_back(id);
      }
    }
    const StepInputs inputs{ids, sequences, rows, want};
    const StepResult& result = executable_.wait(executable_.launch(
        {static_cast<int>(ids.size()), static_cast<int>(parts.size()), static_cast<int>(rows.size()), false}, inputs));
    Output out;
    for (size_t r = 0; r < rows.size(); ++r) {
      out.logits.emplace_back();
      if (result.logits[r] != nullptr) out.logits.back().assign(result.logits[r], result.logits[r] + vocabulary_);
    }
    out.argmax.assign(result.argmax.begin(), result.argmax.end());
    for (const auto& tap : result.taps) out.taps.emplace_back(tap.begin(), tap.end());
    return out;
  }

 private:
  // Blocks of sequence s in a scattered order that no other sequence uses.
  std::vector<int32_t> table(const Part& part) const {
    const int count = (part.context + static_cast<int>(part.ids.size()) + block_size_ - 1) / block_size_;
    const int per_sequence = num_blocks_ / 4;
    std::vector<int32_t> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(part.table * per_sequence + (i * 7 + 3) % per_sequence);
    return blocks;
  }
  Executable& executable_;
  int vocabulary_, block_size_, num_blocks_;
};

inline std::vector<int32_t> random_ids(int count, int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary)));
  return ids;
}

}  // namespace gristmill::device::cpu
