// Gated DeltaNet on the CPU: every set of kernels against the portable one bit for bit, and whole layers against the
// reference back end's definition.
#include "device/reference/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "device/cpu/delta_net_stages.h"
#include "device/cpu/isa.h"
#include "device/cpu/region.h"
#include "device/cpu/tested_kernels.h"

namespace gristmill::device::cpu {
namespace {

struct Shape {
  int k_heads, v_heads, k_dim, v_dim, conv_width;
  bool tiled = false;
};
// The widths of the 122B with few heads, odd ones, one key head per value head, tiled value heads.
const Shape kShapes[] = {{2, 8, 128, 128, 4}, {1, 3, 24, 40, 4}, {3, 3, 7, 9, 3}, {2, 6, 16, 32, 4, true}};
constexpr int kTokens = 70;  // several folds, and a rest

/// Two sequences of random inputs through the stages of one layer.
class Layer {
 public:
  Layer(const Shape& shape, const Kernels& kernels)
      : shape_(shape), shared_({layout_of(shape), 0}, layout_of(shape).floats * sizeof(float)) {
    op_.k_heads = shape.k_heads;
    op_.v_heads = shape.v_heads;
    op_.k_dim = shape.k_dim;
    op_.v_dim = shape.v_dim;
    op_.conv_width = shape.conv_width;
    op_.tiled = shape.tiled;
    op_.out_norm.eps = 1e-6f;
    channels_ = 2 * shape.k_heads * shape.k_dim + v_width();
    conv_ = numbers(channels_ * shape.conv_width, 1, 0.5f);
    a_log_ = numbers(shape.v_heads, 2, 1);
    dt_bias_ = numbers(shape.v_heads, 3, 1);
    out_norm_ = numbers(shape.v_dim, 4, 1);
    conv_data_ = conv_.data(), a_log_data_ = a_log_.data();
    dt_bias_data_ = dt_bias_.data(), out_norm_data_ = out_norm_.data();
    Layout scratch;
    const auto rows = [&](int width) {
      const int64_t stride = (width + 31) / 32 * 32;
      return Rows{scratch.add(sizeof(float) * static_cast<size_t>(stride * 2 * kTokens)), stride, width};
    };
    qkv_ = rows(channels_), z_ = rows(v_width()), b_ = rows(shape.v_heads), a_ = rows(shape.v_heads);
    out_ = rows(v_width());
    shared_.mixed = rows(channels_);
    shared_.products = rows(shape.k_heads * 2 * kDeltaChunk);
    shared_.panels = scratch.add(DeltaNetFrame::most_panels(2 * kTokens, 2) * sizeof(float) *
                                 static_cast<size_t>(shape.k_heads) * shared_.state.layout.key_floats());
    const DeltaNetHeadStage::Weights weights{&a_log_data_, &dt_bias_data_, &out_norm_data_};
    input_ = std::make_unique<DeltaNetInputStage>(op_, shared_, conv_data_, qkv_);
    heads_ = std::make_unique<DeltaNetHeadStage>(op_, shared_, weights, z_, b_, a_, out_);
    frame_.kernels = &kernels;
    frame_.member_bytes = std::max(input_->working_bytes(), heads_->working_bytes());
    frame_.member_offset = scratch.add(frame_.member_bytes);
    scratch_ = Region(scratch.size(), false, "test");
    states_ = Region(2 * shared_.slot_bytes, false, "test");
    std::memset(states_.data(), 0xff, states_.size());  // NaN
    frame_.scratch = scratch_.data();
    frame_.states = states_.data();
    input_->weights_loaded();
    for (int n = 0; n < 2; ++n) {
      text_qkv_[n] = numbers(kTokens * channels_, 10 + static_cast<uint32_t>(n), 2);
      text_z_[n] = numbers(kTokens * v_width(), 20 + static_cast<uint32_t>(n), 2);
      text_b_[n] = numbers(kTokens * shape.v_heads, 30 + static_cast<uint32_t>(n), 3);
      text_a_[n] = numbers(kTokens * shape.v_heads, 40 + static_cast<uint32_t>(n), 3);
      results_[n].resize(static_cast<size_t>(kTokens * v_width()));
    }
    text_a_[0][0] = 25;  // softplus is the identity up there
  }

  int v_width() const { return shape_.v_heads * shape_.v_dim; }
  const std::vector<float>& result(int sequence) const { return results_[sequence]; }

  struct Part {
    int sequence, first, rows;
  };
  void step(const std::vector<Part>& parts) {
    std::vector<SequenceStep> sequences;
    int row = 0;
    for (const Part& part : parts) {
      const auto fill = [&](const std::vector<float>& text, const Rows& rows) {
        for (int t = 0; t < part.rows; ++t)
          std::memcpy(rows.row(frame_, row + t), &text[static_cast<size_t>((part.first + t) * rows.width)],
                      sizeof(float) * static_cast<size_t>(rows.width));
      };
      fill(text_qkv_[part.sequence], qkv_), fill(text_z_[part.sequence], z_);
      fill(text_b_[part.sequence], b_), fill(text_a_[part.sequence], a_);
      sequences.push_back({row, part.rows, part.first, {}, part.sequence});
      row += part.rows;
    }
    frame_.tokens = row;
    frame_.inputs.sequences = sequences;
    // Backwards, as another member might take them.
    for (const Stage* stage : {static_cast<const Stage*>(input_.get()), static_cast<const Stage*>(heads_.get())})
      for (uint32_t item = stage->items(frame_); item-- > 0;) stage->run(frame_, item, 0);
    for (size_t i = 0; i < parts.size(); ++i)
      for (int t = 0; t < parts[i].rows; ++t)
        std::memcpy(&results_[parts[i].sequence][static_cast<size_t>((parts[i].first + t) * v_width())],
                    out_.row(frame_, sequences[i].first_row + t), sizeof(float) * static_cast<size_t>(v_width()));
  }

  /// The same sequence through the definition.
  std::vector<float> reference(int sequence) const {
    const reference::DeltaNetLayout layout(
        {shape_.v_heads, shape_.k_heads, shape_.k_dim, shape_.v_dim, shape_.conv_width});
    std::vector<float> state(layout.floats), work(reference::delta_net_work(layout, op_));
    std::vector<float> out(results_[0].size());
    for (int t = 0; t < kTokens; ++t)
      for (int group = 0; group < shape_.k_heads; ++group)
        reference::delta_net_token(
            op_, layout, {conv_.data(), a_log_.data(), dt_bias_.data(), out_norm_.data()},
            {&text_qkv_[sequence][static_cast<size_t>(t * channels_)],
             &text_z_[sequence][static_cast<size_t>(t * v_width())],
             &text_b_[sequence][static_cast<size_t>(t * shape_.v_heads)],
             &text_a_[sequence][static_cast<size_t>(t * shape_.v_heads)], &out[static_cast<size_t>(t * v_width())]},
            group, t, state.data() + static_cast<size_t>(group) * layout.group_floats, work.data());
    return out;
  }

 private:
  static DeltaNetLayout layout_of(const Shape& s) {
    return DeltaNetLayout({s.v_heads, s.k_heads, s.k_dim, s.v_dim, s.conv_width});
  }
  static std::vector<float> numbers(int count, uint32_t seed, float size) {
    std::mt19937 random(seed);
    std::vector<float> made(static_cast<size_t>(count));
    for (float& x : made) x = (static_cast<float>(random() % 20001) / 10000.0f - 1.0f) * size;
    return made;
  }

  Shape shape_;
  DeltaNet op_;
  int channels_;
  std::vector<float> conv_, a_log_, dt_bias_, out_norm_;
  const float *conv_data_ = nullptr, *a_log_data_ = nullptr, *dt_bias_data_ = nullptr, *out_norm_data_ = nullptr;
  std::vector<float> text_qkv_[2], text_z_[2], text_b_[2], text_a_[2], results_[2];
  Rows qkv_, z_, b_, a_, out_;
  DeltaNetFrame shared_;
  std::unique_ptr<DeltaNetInputStage> input_;
  std::unique_ptr<DeltaNetHeadStage> heads_;
  Region scratch_, states_;
  Frame frame_;
};

TEST(DeltaNetStages, IsTheReferencesDefinition) {
  for (const Shape& shape : kShapes) {
    Layer layer(shape, portable_kernels());
    layer.step({{0, 0, kTokens}});
    const std::vector<float> expected = layer.reference(0);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(layer.result(0)[i], expected[i], 2e-4f) << shape.v_dim << " " << i;
  }
}

TEST(DeltaNetStages, EverySetOfKernelsGivesThePortableBits) {
  for (const Shape& shape : kShapes) {
    Layer portable(shape, portable_kernels());
    portable.step({{0, 0, kTokens}, {1, 0, kTokens}});
    for (const Kernels* kernels : tested_kernels()) {
      Layer layer(shape, *kernels);
      layer.step({{0, 0, kTokens}, {1, 0, kTokens}});
      for (int n = 0; n < 2; ++n)
        EXPECT_EQ(std::memcmp(layer.result(n).data(), portable.result(n).data(), portable.result(n).size() * 4), 0)
            << kernels->name << " " << shape.v_dim;
    }
  }
}

TEST(DeltaNetStages, ChunksAndNeighboursDoNotChangeBits) {
  const Kernels& kernels = *usable_kernels().front();
  for (const Shape& shape : kShapes) {
    Layer whole(shape, kernels);
    whole.step({{0, 0, kTokens}, {1, 0, kTokens}});
    for (const int size : {1, 3, 7, 16, 17, 33, 64}) {
      Layer chunked(shape, kernels);
      // The second sequence goes on by single tokens until both are at their end.
      int first = 0, second = 0;
      while (first < kTokens || second < kTokens) {
        std::vector<Layer::Part> parts;
        const int rows = first < kTokens ? 1 : kTokens - second;
        if (second < kTokens) parts.push_back({1, second, rows});
        const int more = std::min(size, kTokens - first);
        if (more > 0) parts.push_back({0, first, more});
        chunked.step(parts);
        second += second < kTokens ? rows : 0;
        first += more;
      }
      for (int n = 0; n < 2; ++n)
        ASSERT_EQ(std::memcmp(chunked.result(n).data(), whole.result(n).data(), whole.result(n).size() * 4), 0)
            << "chunks of " << size << ", sequence " << n;
    }
  }
}

}  // namespace
}  // namespace gristmill::device::cpu
