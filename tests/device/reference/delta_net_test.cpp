#include "device/reference/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "device/memory_weight.h"

namespace gristmill::device::reference {
namespace {

using testing::Numbers;

constexpr int kTokens = 70;  // several folds, and a rest

/// A DeltaNet of random weights and inputs.
struct Random {
  DeltaNet op;
  std::vector<float> conv, a_log, dt_bias, out_norm, qkv, z, b, a;
  int channels, v_width;

  Random(int k_heads, int v_heads, int k_dim, int v_dim) {
    op.k_heads = k_heads;
    op.v_heads = v_heads;
    op.k_dim = k_dim;
    op.v_dim = v_dim;
    op.out_norm.eps = 1e-6f;
    v_width = v_heads * v_dim;
    channels = 2 * k_heads * k_dim + v_width;
    Numbers numbers(11);
    conv = numbers.take(channels * op.conv_width);
    a_log = numbers.take(v_heads);
    dt_bias = numbers.take(v_heads);
    out_norm = numbers.take(v_dim);
    qkv = numbers.take(kTokens * channels, 2);
    z = numbers.take(kTokens * v_width, 2);
    b = numbers.take(kTokens * v_heads, 3);
    a = numbers.take(kTokens * v_heads, 3);
    a[0] = 25;  // softplus is the identity up there
  }
  DeltaNetLayout layout() const { return DeltaNetLayout({op.v_heads, op.k_heads, op.k_dim, op.v_dim, op.conv_width}); }

  /// Every token through delta_net_token(), from a state full of NaN.
  std::vector<float> run(std::vector<float>* state) const {
    const DeltaNetLayout shape = layout();
    state->assign(shape.floats, std::numeric_limits<float>::quiet_NaN());
    std::vector<float> out(static_cast<size_t>(kTokens * v_width)), work(delta_net_work(shape, op));
    for (int t = 0; t < kTokens; ++t) {
      const DeltaNetRow row{&qkv[static_cast<size_t>(t * channels)], &z[static_cast<size_t>(t * v_width)],
                            &b[static_cast<size_t>(t * op.v_heads)], &a[static_cast<size_t>(t * op.v_heads)],
                            &out[static_cast<size_t>(t * v_width)]};
      for (int group = 0; group < op.k_heads; ++group)
        delta_net_token(op, shape, {conv.data(), a_log.data(), dt_bias.data(), out_norm.data()}, row, group, t,
                        state->data() + static_cast<size_t>(group) * shape.group_floats, work.data());
    }
    return out;
  }

  /// The recurrence of program.h as it stands, in float64, for one value head. S is [k_dim][v_dim].
  std::vector<double> recurrence(int head, std::vector<double>* s) const {
    const auto at = [](const std::vector<float>& x, int i) { return static_cast<double>(x[static_cast<size_t>(i)]); };
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
    const int group = head * op.k_heads / op.v_heads, keys = op.k_heads * op.k_dim;
    s->assign(static_cast<size_t>(op.k_dim * op.v_dim), 0);
    std::vector<double> out;
    for (int t = 0; t < kTokens; ++t) {
      const auto channel = [&](int c) {
        double sum = 0;
        for (int j = 0; j < op.conv_width; ++j) {
          const int token = t - op.conv_width + 1 + j;
          if (token >= 0) sum += at(conv, c * op.conv_width + j) * at(qkv, token * channels + c);
        }
        return silu(sum);
      };
      std::vector<double> q, k, v, o(static_cast<size_t>(op.v_dim));
      double qq = 0, kk = 0;
      for (int i = 0; i < op.k_dim; ++i) {
        q.push_back(channel(group * op.k_dim + i));
        k.push_back(channel(keys + group * op.k_dim + i));
        qq += q.back() * q.back();
        kk += k.back() * k.back();
      }
      for (int i = 0; i < op.k_dim; ++i) {
        q[static_cast<size_t>(i)] /= std::sqrt(qq + 1e-6) * std::sqrt(static_cast<double>(op.k_dim));
        k[static_cast<size_t>(i)] /= std::sqrt(kk + 1e-6);
      }
      for (int c = 0; c < op.v_dim; ++c) v.push_back(channel(2 * keys + head * op.v_dim + c));
      const double beta = 1 / (1 + std::exp(-at(b, t * op.v_heads + head)));
      const double x = at(a, t * op.v_heads + head) + at(dt_bias, head);
      const double decay = std::exp(-std::exp(at(a_log, head)) * std::log1p(std::exp(x)));
      double squares = 0;
      for (int c = 0; c < op.v_dim; ++c) {
        double read = 0;
        for (int r = 0; r < op.k_dim; ++r) {
          double& cell = (*s)[static_cast<size_t>(r * op.v_dim + c)];
          cell *= decay;
          read += cell * k[static_cast<size_t>(r)];
        }
        const double write = beta * (v[static_cast<size_t>(c)] - read);
        for (int r = 0; r < op.k_dim; ++r) {
          double& cell = (*s)[static_cast<size_t>(r * op.v_dim + c)];
          cell += k[static_cast<size_t>(r)] * write;
          o[static_cast<size_t>(c)] += cell * q[static_cast<size_t>(r)];
        }
        squares += o[static_cast<size_t>(c)] * o[static_cast<size_t>(c)];
      }
      const double factor = 1 / std::sqrt(squares / op.v_dim + 1e-6);
      for (int c = 0; c < op.v_dim; ++c)
        out.push_back(o[static_cast<size_t>(c)] * factor * at(out_norm, c) *
                      silu(at(z, t * v_width + head * op.v_dim + c)));
    }
    return out;
  }
};

void expect_recurrence(const Random& random) {
  std::vector<float> state;
  const std::vector<float> out = random.run(&state);
  const DeltaNetLayout layout = random.layout();
  const DeltaNet& op = random.op;
  const auto size = static_cast<size_t>(op.k_dim * op.v_dim);
  for (int head = 0; head < op.v_heads; ++head) {
    std::vector<double> s;
    const std::vector<double> expected = random.recurrence(head, &s);
    for (int t = 0; t < kTokens; ++t)
      for (int c = 0; c < op.v_dim; ++c)
        ASSERT_NEAR(out[static_cast<size_t>(t * random.v_width + head * op.v_dim + c)],
                    expected[static_cast<size_t>(t * op.v_dim + c)], 2e-5)
            << "head " << head << " token " << t;
    std::vector<float> folded(static_cast<size_t>(layout.values) * size);
    const int group = head / layout.values;
    delta_net_state(op, layout, state.data() + static_cast<size_t>(group) * layout.group_floats, kTokens,
                    folded.data());
    for (size_t i = 0; i < size; ++i)
      ASSERT_NEAR(folded[static_cast<size_t>(head % layout.values) * size + i], s[i], 1e-5) << "head " << head;
  }
}

TEST(DeltaNet, IsTheRecurrenceUnrolledOverSixteenTokens) {
  expect_recurrence(Random(2, 4, 8, 6));
  expect_recurrence(Random(1, 3, 5, 7));
  expect_recurrence(Random(3, 3, 4, 16));
}

TEST(DeltaNet, LaysGroupsOutOneAfterTheOther) {
  const DeltaNetLayout layout({4, 2, 8, 6, 4});
  EXPECT_EQ(layout.values, 2);
  EXPECT_EQ(layout.channels, 2 * 8 + 2 * 6);
  EXPECT_EQ(layout.decay, 4u * 28);
  EXPECT_EQ(layout.key, layout.decay + 16 * 2);
  EXPECT_EQ(layout.write, layout.key + 16 * 8);
  EXPECT_EQ(layout.folded, layout.write + 16 * 2 * 6);
  EXPECT_GE(layout.group_floats, layout.folded + 2 * 8 * 6);
  EXPECT_EQ(layout.floats, 2 * layout.group_floats);
}

}  // namespace
}  // namespace gristmill::device::reference
