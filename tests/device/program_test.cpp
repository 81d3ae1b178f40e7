#include "device/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/memory_weight.h"

namespace gristmill::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const WeightSource> weight(const std::string& name, int64_t rows, int64_t columns) {
  return std::make_shared<testing::MemoryWeight>(name, rows, columns,
                                                 std::vector<float>(static_cast<size_t>(rows * columns)));
}

/// A builder with an embedding of width 8 for 10 tokens, and the weights that fit it.
class ProgramBuilderTest : public ::testing::Test {
 protected:
  ProgramBuilder builder;
  WeightRef table = builder.weight(weight("table", 10, 8));
  WeightRef norm = builder.weight(weight("norm", 1, 8));
  Value x = builder.embed(table);

  WeightRef add(const std::string& name, int64_t rows, int64_t columns) {
    return builder.weight(weight(name, rows, columns));
  }
  template <class Call>
  std::string error_of(Call call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(ProgramBuilderTest, KnowsWidthsAndVocabulary) {
  const std::vector<Value> two =
      builder.linear(x, Norm{norm}, {{add("a", 4, 8), {}}, {add("b", 6, 8), add("bias", 1, 6)}});
  ASSERT_EQ(two.size(), 2u);
  const std::vector<Value> pair =
      builder.linear(x, {}, {{add("gate", 12, 8), {}}, {add("up", 12, 8), {}}}, Activation::silu_mul);
  ASSERT_EQ(pair.size(), 1u);
  builder.tap(x, 0);
  builder.head(x, Norm{norm}, table);
  const Program program = std::move(builder).build();
  EXPECT_EQ(program.width(two[0]), 4);
  EXPECT_EQ(program.width(two[1]), 6);
  EXPECT_EQ(program.width(pair[0]), 12);
  EXPECT_EQ(program.vocabulary(), 10);
  EXPECT_EQ(program.taps(), 1);
  EXPECT_EQ(program.tap_width(), 8);
  EXPECT_EQ(program.ops().size(), 5u);
  EXPECT_EQ(program.weight(table).name(), "table");
}

TEST_F(ProgramBuilderTest, NamesTheWeightThatDoesNotFit) {
  EXPECT_THAT(error_of([&] { builder.linear(x, {}, {{add("wide", 4, 9), {}}}); }),
              AllOf(HasSubstr("wide"), HasSubstr("[4, 9]"), HasSubstr("width 8")));
  EXPECT_THAT(error_of([&] { builder.linear(x, {}, {{add("w", 4, 8), add("short bias", 1, 3)}}); }),
              HasSubstr("short bias"));
  EXPECT_THAT(error_of([&] { builder.linear(x, Norm{add("long norm", 1, 9)}, {{add("w", 4, 8), {}}}); }),
              HasSubstr("long norm"));
  EXPECT_THAT(error_of([&] { builder.linear(x, Norm{add("square norm", 8, 8)}, {{add("w", 4, 8), {}}}); }),
              HasSubstr("square norm"));
  EXPECT_THAT(error_of([&] {
                builder.linear(x, {}, {{add("gate", 4, 8), {}}, {add("odd up", 5, 8), {}}}, Activation::silu_mul);
              }),
              AllOf(HasSubstr("odd up"), HasSubstr("gate")));
  EXPECT_THAT(error_of([&] { builder.linear(x, {}, {{add("gate", 4, 8), {}}}, Activation::silu_mul); }),
              HasSubstr("exactly two"));
  EXPECT_THAT(error_of([&] { builder.linear(x, {}, {}); }), HasSubstr("at least one"));
  EXPECT_THAT(error_of([&] { builder.head(x, Norm{norm}, add("narrow head", 10, 7)); }), HasSubstr("narrow head"));
  EXPECT_THAT(error_of([&] { builder.head(x, Norm{add("head norm", 1, 7)}, table); }), HasSubstr("head norm"));
  EXPECT_THAT(error_of([&] { builder.weight(nullptr); }), HasSubstr("source"));
}

TEST_F(ProgramBuilderTest, ChecksAttention) {
  const std::vector<Value> qkv =
      builder.linear(x, {}, {{add("q", 16, 8), {}}, {add("k", 8, 8), {}}, {add("v", 8, 8), {}}});
  Attention a;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 4;
  a.cache = builder.cache(2, 4);
  a.rope = Rope{{1.0f, 0.1f}, 1.0f};
  EXPECT_EQ(error_of([&] { builder.attention(qkv[0], qkv[1], qkv[2], a); }), "");
  const auto refused = [&](auto change) {
    Attention other = a;
    change(other);
    return error_of([&] { builder.attention(qkv[0], qkv[1], qkv[2], other); });
  };
  EXPECT_THAT(refused([](Attention& o) { o.kv_heads = 3; }), HasSubstr("cannot share 3"));
  EXPECT_THAT(refused([](Attention& o) { o.heads = 2; }), HasSubstr("queries of width 16"));
  EXPECT_THAT(refused([](Attention& o) { o.kv_heads = 1; }), HasSubstr("keys of width 8"));
  EXPECT_THAT(refused([&](Attention& o) { o.cache = builder.cache(2, 8); }), HasSubstr("cache holds 2 heads of 8"));
  EXPECT_THAT(refused([](Attention& o) { o.rope->inv_freq.resize(3); }), HasSubstr("3 rotary frequencies"));
  EXPECT_THAT(error_of([&] { builder.attention(qkv[0], qkv[1], qkv[0], a); }), HasSubstr("values of width 16"));
  EXPECT_THAT(error_of([&] { builder.cache(0, 4); }), HasSubstr("empty"));
}

TEST_F(ProgramBuilderTest, ChecksNormsOfQueriesAndKeys) {
  const std::vector<Value> qkv =
      builder.linear(x, {}, {{add("q", 16, 8), {}}, {add("k", 8, 8), {}}, {add("v", 8, 8), {}}});
  Attention a;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 4;
  a.cache = builder.cache(2, 4);
  const auto refused = [&](int q_elements, int k_elements) {
    a.q_norm = Norm{add("q norm", 1, q_elements)};
    a.k_norm = Norm{add("k norm", 1, k_elements)};
    return error_of([&] { builder.attention(qkv[0], qkv[1], qkv[2], a); });
  };
  EXPECT_EQ(refused(4, 4), "");
  EXPECT_EQ(refused(16, 8), "");
  EXPECT_THAT(refused(8, 8), AllOf(HasSubstr("q norm"), HasSubstr("4 elements"), HasSubstr("16 (all heads)")));
  EXPECT_THAT(refused(4, 16), HasSubstr("k norm"));
}

TEST_F(ProgramBuilderTest, ChecksGatesAndNorms) {
  const Value one = builder.linear(x, {}, {{add("one", 1, 8), {}}})[0];
  const Value narrow = builder.linear(x, {}, {{add("w", 4, 8), {}}})[0];
  EXPECT_EQ(error_of([&] { builder.gate(builder.gate(x, x), one); }), "");
  EXPECT_THAT(error_of([&] { builder.gate(x, narrow); }), HasSubstr("width 4"));
  EXPECT_THAT(error_of([&] { builder.norm(narrow, Norm{norm}); }), HasSubstr("norm"));
}

TEST_F(ProgramBuilderTest, ChecksMixturesOfExperts) {
  Moe moe;
  moe.experts = 3;
  moe.top_k = 2;
  moe.width = 5;
  moe.router = add("router", 3, 8);
  moe.select_bias = add("choice", 1, 3);
  moe.gate_up = add("gate_up", 30, 8);
  moe.down = add("down", 24, 5);
  EXPECT_EQ(error_of([&] { builder.moe(x, moe); }), "");
  const auto refused = [&](auto change) {
    Moe other = moe;
    change(other);
    return error_of([&] { builder.moe(x, other); });
  };
  EXPECT_THAT(refused([](Moe& o) { o.top_k = 4; }), HasSubstr("4 of 3 experts"));
  EXPECT_THAT(refused([&](Moe& o) { o.router = add("odd router", 4, 8); }), HasSubstr("odd router"));
  EXPECT_THAT(refused([&](Moe& o) { o.select_bias = add("odd choice", 1, 4); }), HasSubstr("odd choice"));
  EXPECT_THAT(refused([&](Moe& o) { o.gate_up = add("odd gates", 15, 8); }),
              AllOf(HasSubstr("odd gates"), HasSubstr("[30, 8]")));
  EXPECT_THAT(refused([&](Moe& o) { o.down = add("odd down", 24, 6); }), HasSubstr("odd down"));
}

TEST_F(ProgramBuilderTest, ChecksDeltaNets) {
  DeltaNet d;
  d.k_heads = 1;
  d.v_heads = 2;
  d.k_dim = 3;
  d.v_dim = 4;
  const int channels = 14;
  const std::vector<Value> in = builder.linear(
      x, {}, {{add("qkv", channels, 8), {}}, {add("z", 8, 8), {}}, {add("b", 2, 8), {}}, {add("a", 2, 8), {}}});
  d.conv = add("conv", channels, 4);
  d.a_log = add("a_log", 1, 2);
  d.dt_bias = add("dt_bias", 1, 2);
  d.out_norm = Norm{add("out norm", 1, 4)};
  d.state = builder.state({2, 1, 3, 4, 4});
  EXPECT_EQ(error_of([&] { builder.delta_net(in[0], in[1], in[2], in[3], d); }), "");
  const auto refused = [&](auto change) {
    DeltaNet other = d;
    change(other);
    return error_of([&] { builder.delta_net(in[0], in[1], in[2], in[3], other); });
  };
  EXPECT_THAT(refused([&](DeltaNet& o) { o.conv = add("short conv", channels, 3); }), HasSubstr("short conv"));
  EXPECT_THAT(refused([&](DeltaNet& o) { o.a_log = add("long decay", 1, 3); }), HasSubstr("long decay"));
  EXPECT_THAT(refused([&](DeltaNet& o) { o.out_norm = Norm{add("wide norm", 1, 8)}; }), HasSubstr("wide norm"));
  EXPECT_THAT(refused([&](DeltaNet& o) { o.state = builder.state({2, 1, 3, 4, 3}); }), HasSubstr("another shape"));
  EXPECT_THAT(error_of([&] { builder.delta_net(in[1], in[1], in[2], in[3], d); }), HasSubstr("width 8, not 14"));
  EXPECT_THAT(error_of([&] { builder.state({3, 2, 4, 4, 4}); }), HasSubstr("cannot share 2"));
}

TEST_F(ProgramBuilderTest, ChecksResidualsAndTaps) {
  const Value narrow = builder.linear(x, {}, {{add("w", 4, 8), {}}})[0];
  EXPECT_THAT(error_of([&] { builder.residual(x, narrow); }), HasSubstr("8 and 4"));
  EXPECT_THAT(error_of([&] { builder.tap(x, 1); }), HasSubstr("the next is 0"));
  builder.tap(x, 0);
  EXPECT_THAT(error_of([&] { builder.tap(narrow, 1); }), HasSubstr("width 4"));
}

TEST_F(ProgramBuilderTest, WantsOneHeadThatKnowsAllEmbeddings) {
  EXPECT_THAT(error_of([&] { ProgramBuilder(builder).build(); }), HasSubstr("without a head"));
  ProgramBuilder other = builder;
  other.head(x, Norm{norm}, other.weight(weight("head", 11, 8)));
  EXPECT_THAT(error_of([&] { std::move(other).build(); }), AllOf(HasSubstr("table"), HasSubstr("11 tokens")));
  builder.head(x, Norm{norm}, table);
  EXPECT_THAT(error_of([&] { builder.head(x, Norm{norm}, table); }), HasSubstr("one head"));
}

TEST_F(ProgramBuilderTest, CutsWeightsForRanks) {
  using Axis = RankSlice::Axis;
  const WeightRef columns = builder.weight(weight("columns", 6, 16), {Axis::columns, 1, 2});
  const WeightRef rows = builder.weight(weight("rows", 6, 8), {Axis::rows, 0, 2});
  const std::vector<Value> out =
      builder.linear(x, {}, {{columns, {}, Collective::all_reduce}, {rows, {}}, {rows, {}, Collective::all_gather}});
  builder.head(x, Norm{norm}, table);
  const Program program = std::move(builder).build();
  EXPECT_EQ(program.width(out[0]), 6);
  EXPECT_EQ(program.width(out[1]), 3);
  EXPECT_EQ(program.width(out[2]), 6);
  ProgramBuilder other;
  EXPECT_THAT(error_of([&] { other.weight(weight("odd", 5, 8), {Axis::rows, 0, 2}); }),
              AllOf(HasSubstr("odd"), HasSubstr("2 ranks")));
  EXPECT_THAT(error_of([&] { other.weight(weight("w", 4, 8), {Axis::rows, 2, 2}); }), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace gristmill::device
