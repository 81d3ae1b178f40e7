#include "client/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace gristmill::wire {
namespace {

std::span<const uint8_t> payload(const Bytes& frame) {
  return std::span(frame).subspan(6);
}

engine::EngineRequest full_request() {
  engine::EngineRequest request;
  request.id = 77;
  request.prompt = {1, 2, 3};
  request.sampling.seed = -5;
  request.sampling.logit_bias = {{4, 0.5f}};
  request.sampling.bad_words = {{1, 2}, {3}};
  request.n = 3;
  request.cache_salt = "salt";
  request.known_tokens = 40;
  return request;
}

TEST(Wire, ARequestComesThroughWhole) {
  const engine::EngineRequest sent = full_request();
  const engine::EngineRequest got = read_submit(payload(submit_frame(sent)));
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.prompt, sent.prompt);
  EXPECT_EQ(got.sampling.seed, sent.sampling.seed);
  EXPECT_EQ(got.sampling.logit_bias, sent.sampling.logit_bias);
  EXPECT_EQ(got.sampling.bad_words, sent.sampling.bad_words);
  EXPECT_EQ(got.n, 3);
  EXPECT_EQ(got.cache_salt, "salt");
  EXPECT_EQ(got.known_tokens, 40);
}

TEST(Wire, AConfigurationComesThroughWhole) {
  engine::EngineConfig sent;
  sent.model = "model";
  sent.threads = 3;
  sent.weight_cache_dir = "/srv/weights";
  sent.weight_cache_bytes = int64_t{5} << 40;
  sent.weight_residence = device::Residence::owned;
  sent.topology = {{{0, 2, {0, 1, 8, 9}}, {3, 1, {4}}}, true};
  const engine::EngineConfig got = read_hello(payload(hello_frame(sent)));
  EXPECT_EQ(got.model, "model");
  EXPECT_EQ(got.threads, 3);
  EXPECT_EQ(got.weight_cache_dir, "/srv/weights");
  EXPECT_EQ(got.weight_cache_bytes, int64_t{5} << 40);
  EXPECT_EQ(got.weight_residence, device::Residence::owned);
  ASSERT_EQ(got.topology.domains.size(), 2u);
  EXPECT_EQ(got.topology.domains[0].cpus, (std::vector<int>{0, 1, 8, 9}));
  EXPECT_EQ(got.topology.domains[1].numa_node, 3);
  EXPECT_EQ(got.topology.domains[1].cores, 1);
  EXPECT_TRUE(got.topology.bind);
}

TEST(Wire, OutputsComeThroughWhole) {
  engine::EngineOutput output;
  output.id = 5;
  output.index = 1;
  output.tokens.push_back({9, {9, -0.5f, 2}, {{8, -0.1f, 1}}});
  output.finish = engine::FinishReason::stop;
  output.error = "why";
  output.bad_request = true;
  output.queued = 1.5;
  output.scheduled = 2.5;
  output.made = 3.5;
  const auto got = read_outputs(payload(outputs_frame({output})));
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].tokens[0].top[0].token, 8);
  EXPECT_EQ(got[0].tokens[0].sampled.rank, 2);
  EXPECT_EQ(got[0].finish, engine::FinishReason::stop);
  EXPECT_EQ(got[0].error, "why");
  EXPECT_TRUE(got[0].bad_request);
  EXPECT_EQ(got[0].queued, 1.5);
  EXPECT_EQ(got[0].scheduled, 2.5);
  EXPECT_EQ(got[0].made, 3.5);
}

TEST(Wire, AbortsAndFiguresComeThroughWhole) {
  EXPECT_EQ(read_abort(payload(abort_frame(7, 2))), std::pair(engine::RequestId{7}, 2));
  engine::EngineStats stats;
  stats.cached_prompt_tokens = 5;
  stats.step_tokens = 9;
  stats.steps_by_tokens.back() = 4;
  const StatsMessage got = read_stats(payload(stats_frame(stats, 0.25)));
  EXPECT_EQ(got.stats.cached_prompt_tokens, 5u);
  EXPECT_EQ(got.stats.step_tokens, 9u);
  EXPECT_EQ(got.stats.steps_by_tokens.back(), 4u);
  EXPECT_EQ(got.seconds_in_step, 0.25);
}

TEST(Wire, EveryTruncationIsAnError) {
  const Bytes frame = submit_frame(full_request());
  const auto whole = payload(frame);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_THROW(read_submit(whole.first(size)), Error) << size;
  Bytes longer(whole.begin(), whole.end());
  longer.push_back(0);
  EXPECT_THROW(read_submit(longer), Error);
}

TEST(Wire, AHugeCountIsRefusedBeforeAllocation) {
  Bytes frame = outputs_frame({});
  for (size_t i = 6; i < 10; ++i) frame[i] = 0xff;
  EXPECT_THROW(read_outputs(payload(frame)), Error);
}

TEST(FrameReader, PutsSplitFramesTogether) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Bytes first = abort_frame(1, 0), second = submit_frame(full_request());
  Bytes all = first;
  all.insert(all.end(), second.begin(), second.end());
  FrameReader reader;
  std::vector<Type> seen;
  for (const uint8_t byte : all) {
    ASSERT_TRUE(write_frame(pair[0], {&byte, 1}));
    ASSERT_TRUE(reader.fill(pair[1]));
    while (const auto frame = reader.next()) seen.push_back(frame->type);
  }
  EXPECT_EQ(seen, (std::vector<Type>{Type::abort, Type::submit}));
  ::close(pair[0]);
  EXPECT_FALSE(reader.fill(pair[1]));
  ::close(pair[1]);
}

TEST(FrameReader, RefusesAnImpossibleLength) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Bytes garbage(16, 0xff);
  write_frame(pair[0], garbage);
  FrameReader reader;
  ASSERT_TRUE(reader.fill(pair[1]));
  EXPECT_THROW(reader.next(), Error);
  ::close(pair[0]);
  ::close(pair[1]);
}

}  // namespace
}  // namespace gristmill::wire
