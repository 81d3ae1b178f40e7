#include "device/cpu/delta_net_stages.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gristmill::device::cpu {
namespace {

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

constexpr int kLineFloats = 16;

/// Tokens of a step from `done` on that lie in one chunk.
int rows_in_chunk(const SequenceStep& sequence, int done) {
  return std::min(sequence.rows - done, kDeltaChunk - (sequence.context + done) % kDeltaChunk);
}

/// Asks for `count` floats of each of `rows` rows. The rows of a step lie tens of kilobytes apart, where no hardware
/// looks ahead, so each chunk asks for the next one's.
[[gnu::always_inline]] inline void prefetch_rows(const Frame& frame, const Rows& matrix, int first_row, int rows,
                                                 int first, int count) {
  for (int row = first_row; row < first_row + rows; ++row) {
    const float* const at = matrix.row(frame, row) + first;
    for (int i = 0; i < count; i += kLineFloats) __builtin_prefetch(at + i, 0, 2);
  }
}

}  // namespace

float* DeltaNetFrame::keys(const Frame& frame, int sequence, int chunk, int group) const {
  const SequenceStep& step = frame.inputs.sequences[static_cast<size_t>(sequence)];
  const size_t head = static_cast<size_t>(group) * state.layout.key_floats();
  if (chunk == (step.context + step.rows - 1) / kDeltaChunk) return slot(frame, step) + state.layout.keys + head;
  // Sequences before this one have at most first_row / kDeltaChunk + 1 each of such chunks.
  const int panel = step.first_row / kDeltaChunk + sequence + chunk - step.context / kDeltaChunk;
  return reinterpret_cast<float*>(frame.scratch + panels) +
         static_cast<size_t>(panel) * static_cast<size_t>(state.layout.k_heads) * state.layout.key_floats() + head;
}

void DeltaNetInputStage::weights_loaded() {
  const auto channels = static_cast<size_t>(shared_.state.layout.channels), width = static_cast<size_t>(op_.conv_width);
  taps_.resize(channels * width);
  for (size_t c = 0; c < channels; ++c)
    for (size_t j = 0; j < width; ++j) taps_[j * channels + c] = conv_[c * width + j];
}

/// Channels [first, first + count) of the tokens from `position` on.
void DeltaNetInputStage::convolve(const Frame& frame, float* inputs, int row, int rows, int32_t position, int first,
                                  int count) const {
  ConvRows conv;
  conv.x = qkv_.row(frame, row) + first;
  conv.x_stride = qkv_.stride;
  conv.out = shared_.mixed.row(frame, row) + first;
  conv.out_stride = shared_.mixed.stride;
  conv.rows = rows;
  conv.n = count;
  conv.position = position;
  conv.width = op_.conv_width;
  conv.taps = taps_.data() + first;
  conv.tap_stride = conv.earlier_stride = shared_.state.layout.channels;
  conv.earlier = inputs + first;
  frame.kernels->delta_net.conv_silu(conv);
}

void DeltaNetInputStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const int group = static_cast<int>(item) % op_.k_heads, index = static_cast<int>(item) / op_.k_heads;
  const SequenceStep& sequence = frame.inputs.sequences[static_cast<size_t>(index)];
  const DeltaNetLayout& layout = shared_.state.layout;
  const DeltaNetKernels& kernels = frame.kernels->delta_net;
  const int all_keys = op_.k_heads * op_.k_dim, q = group * op_.k_dim, k = all_keys + q;
  const int v_width = op_.v_heads / op_.k_heads * op_.v_dim, v = 2 * all_keys + group * v_width;
  float* const slot = shared_.slot(frame, sequence);
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(op_.k_dim));

  for (int done = 0, rows = 0; done < sequence.rows; done += rows) {
    rows = rows_in_chunk(sequence, done);
    const int32_t position = sequence.context + done;
    const int first_row = sequence.first_row + done, place = position % kDeltaChunk;
    const int next = done + rows < sequence.rows ? rows_in_chunk(sequence, done + rows) : 0;
    prefetch_rows(frame, qkv_, first_row + rows, next, q, op_.k_dim);
    prefetch_rows(frame, qkv_, first_row + rows, next, k, op_.k_dim);
    prefetch_rows(frame, qkv_, first_row + rows, next, v, v_width);
    float* const keys = shared_.keys(frame, index, position / kDeltaChunk, group);
    float* const kept = slot + layout.keys + static_cast<size_t>(group) * layout.key_floats();
    // The chunk that an earlier step began: its keys must outlive the last chunk's, which go to the state.
    if (place != 0 && keys != kept) std::memcpy(keys, kept, sizeof(float) * layout.key_floats());
    convolve(frame, slot, first_row, rows, position, q, op_.k_dim);
    convolve(frame, slot, first_row, rows, position, k, op_.k_dim);
    convolve(frame, slot, first_row, rows, position, v, v_width);
    for (int i = 0; i < rows; ++i) {
      float* const mixed = shared_.mixed.row(frame, first_row + i);
      kernels.l2_norm(mixed + q, q_scale, op_.k_dim);
      kernels.l2_norm(mixed + k, 1.0f, op_.k_dim);
      for (int d = 0; d < op_.k_dim; ++d) keys[d * kDeltaChunk + place + i] = mixed[k + d];
    }
    const float* const mixed = shared_.mixed.row(frame, first_row);
    float* const products = shared_.products_of(frame, first_row, group);
    const int64_t stride = shared_.mixed.stride, out_stride = shared_.products.stride;
    kernels.key_products(keys, mixed + k, stride, rows, op_.k_dim, products, out_stride);
    kernels.key_products(keys, mixed + q, stride, rows, op_.k_dim, products + kDeltaChunk, out_stride);
  }
}

/// A member's working memory. Rows of reads are v_padded wide.
struct DeltaNetHeadStage::Work {
  explicit Work(const DeltaNetLayout& layout, float* at) : key_reads(at) {
    query_reads = key_reads + kDeltaChunk * layout.v_padded;
    key_weights = query_reads + kDeltaChunk * layout.v_padded;
    query_weights = key_weights + kDeltaChunk * kDeltaChunk;
    kept = query_weights + kDeltaChunk * kDeltaChunk;
    beta = kept + kDeltaChunk;
    decay = beta + kDeltaChunk;
    weighted_keys = decay + kDeltaChunk;
  }
  static size_t floats(const DeltaNetLayout& layout) {
    return static_cast<size_t>(kDeltaChunk) *
           static_cast<size_t>(2 * layout.v_padded + 2 * kDeltaChunk + 3 + layout.k_dim);
  }
  float *key_reads, *query_reads, *key_weights, *query_weights, *kept, *beta, *decay, *weighted_keys;
};

/// Tokens of one chunk, of one value head.
struct DeltaNetHeadStage::Chunk {
  int sequence, head, group;
  int32_t position;      ///< of the first token
  int first_row, place;  ///< its row in the step, its place in the chunk
  int rows;
};

size_t DeltaNetHeadStage::working_bytes() const {
  return sizeof(float) * Work::floats(shared_.state.layout);
}

/// G, beta and the weights e^{G_i - G_j} (k_i.k_j), e^{G_i - G_j} (q_i.k_j).
void DeltaNetHeadStage::weigh(const Frame& frame, const Chunk& c, float* totals, const Work& work) const {
  const DeltaNetKernels& kernels = frame.kernels->delta_net;
  const float rate = std::exp((*weights_.a_log)[c.head]), bias = (*weights_.dt_bias)[c.head];
  for (int t = 0; t < c.rows; ++t) {
    const int i = c.place + t, row = c.first_row + t;
    const float g = -rate * softplus(a_.row(frame, row)[c.head] + bias);
    totals[i] = i == 0 ? g : totals[i - 1] + g;
    work.kept[t] = totals[i];
    work.beta[t] = -b_.row(frame, row)[c.head];
    for (int j = 0; j <= i; ++j) work.decay[j] = totals[i] - totals[j];
    kernels.exp(work.decay, i + 1, work.decay);
    const float* const products = shared_.products_of(frame, row, c.group);
    for (int j = 0; j <= i; ++j) {
      work.key_weights[t * kDeltaChunk + j] = work.decay[j] * products[j];
      work.query_weights[t * kDeltaChunk + j] = work.decay[j] * products[kDeltaChunk + j];
    }
  }
  kernels.exp(work.kept, c.rows, work.kept);
  kernels.exp(work.beta, c.rows, work.beta);
  for (int t = 0; t < c.rows; ++t) work.beta[t] = 1.0f / (1.0f + work.beta[t]);
}

/// S'k and S'q of the folded state.
void DeltaNetHeadStage::read_state(const Frame& frame, const Chunk& c, const float* folded, const Work& work) const {
  const DeltaNetLayout& layout = shared_.state.layout;
  PackedWeight state;
  state.cls = ComputeClass::f32;
  state.outputs = layout.v_padded;
  state.inputs = op_.k_dim;
  state.panel_bytes = state.panel_stride = sizeof(float) * static_cast<size_t>(op_.k_dim) * kFloatPanel;
  state.data = reinterpret_cast<const std::byte*>(folded);
  const int all_keys = op_.k_heads * op_.k_dim;
  const float* const queries = shared_.mixed.row(frame, c.first_row) + c.group * op_.k_dim;
  // Panel by panel, so that the second product finds it in the cache.
  for (int64_t panel = 0; panel < state.panels(); ++panel) {
    const int64_t column = panel * kFloatPanel, stride = shared_.mixed.stride;
    frame.kernels->float_linear(state, panel, 1, queries + all_keys, stride, c.rows, work.key_reads + column,
                                layout.v_padded);
    frame.kernels->float_linear(state, panel, 1, queries, stride, c.rows, work.query_reads + column, layout.v_padded);
  }
}

/// Norm and gate of the results, which are in work.query_reads.
void DeltaNetHeadStage::finish_rows(const Frame& frame, const Chunk& c, const Work& work) const {
  for (int t = 0; t < c.rows; ++t) {
    const int row = c.first_row + t, first = c.head * op_.v_dim;
    float* const out = out_.row(frame, row) + first;
    frame.kernels->rms_norm(work.query_reads + t * shared_.state.layout.v_padded, *weights_.out_norm, op_.out_norm.eps,
                            op_.v_dim, out);
    frame.kernels->silu_mul(z_.row(frame, row) + first, out, op_.v_dim, out);
  }
}

/// Behind the chunk's last token.
void DeltaNetHeadStage::fold(const Frame& frame, const Chunk& c, const float* totals, const float* writes,
                             float* folded, const Work& work) const {
  const DeltaNetKernels& kernels = frame.kernels->delta_net;
  const float* const keys = shared_.keys(frame, c.sequence, c.position / kDeltaChunk, c.group);
  const float last = totals[kDeltaChunk - 1];
  for (int j = 0; j < kDeltaChunk; ++j) work.decay[j] = last - totals[j];
  kernels.exp(work.decay, kDeltaChunk, work.decay);
  kernels.scale_keys(keys, work.decay, op_.k_dim, work.weighted_keys);
  float kept = 0;
  kernels.exp(&last, 1, &kept);
  kernels.fold(kept, work.weighted_keys, writes, shared_.state.layout.v_padded, op_.k_dim, folded);
}

void DeltaNetHeadStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const DeltaNetLayout& layout = shared_.state.layout;
  Chunk c{};
  c.head = static_cast<int>(item) % op_.v_heads;
  c.sequence = static_cast<int>(item) / op_.v_heads;
  c.group = op_.tiled ? c.head % op_.k_heads : c.head / (op_.v_heads / op_.k_heads);
  const SequenceStep& sequence = frame.inputs.sequences[static_cast<size_t>(c.sequence)];
  float* const totals = shared_.slot(frame, sequence) + layout.heads + static_cast<size_t>(c.head) * layout.head_floats;
  float *const writes = totals + layout.writes, *const folded = totals + layout.folded;
  const Work work(layout, reinterpret_cast<float*>(frame.working_memory(member)));
  const int v_first = 2 * op_.k_heads * op_.k_dim + c.head * op_.v_dim;
  if (sequence.context == 0) std::fill_n(folded, layout.head_floats - layout.folded, 0.0f);

  for (int done = 0; done < sequence.rows; done += c.rows) {
    c.rows = rows_in_chunk(sequence, done);
    c.position = sequence.context + done;
    c.first_row = sequence.first_row + done;
    c.place = c.position % kDeltaChunk;
    const int next = c.first_row + c.rows;
    const int next_rows = done + c.rows < sequence.rows ? rows_in_chunk(sequence, done + c.rows) : 0;
    prefetch_rows(frame, shared_.mixed, next, next_rows, v_first, op_.v_dim);
    weigh(frame, c, totals, work);
    read_state(frame, c, folded, work);
    prefetch_rows(frame, z_, next, next_rows, c.head * op_.v_dim, op_.v_dim);
    DeltaNetRows rows;
    rows.first = c.place;
    rows.count = c.rows;
    rows.v_dim = op_.v_dim;
    rows.padded = layout.v_padded;
    rows.values = shared_.mixed.row(frame, c.first_row) + v_first;
    rows.value_stride = shared_.mixed.stride;
    rows.key_reads = work.key_reads;
    rows.query_reads = work.query_reads;
    rows.kept = work.kept;
    rows.beta = work.beta;
    rows.key_weights = work.key_weights;
    rows.query_weights = work.query_weights;
    rows.writes = writes;
    frame.kernels->delta_net.rows(rows);
    prefetch_rows(frame, shared_.mixed, next, next_rows, c.group * op_.k_dim, op_.k_dim);
    prefetch_rows(frame, shared_.mixed, next, next_rows, (op_.k_heads + c.group) * op_.k_dim, op_.k_dim);
    prefetch_rows(frame, shared_.products, next, next_rows, c.group * 2 * kDeltaChunk, 2 * kDeltaChunk);
    finish_rows(frame, c, work);
    if (c.place + c.rows == kDeltaChunk) fold(frame, c, totals, writes, folded, work);
  }
}

}  // namespace gristmill::device::cpu
