// What GGUF files of one architecture may spell differently.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "model/golden.h"
#include "weights/gguf_bytes.h"

namespace gristmill::model {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::TemporaryFolder;

std::string fixture(const std::string& name) {
  std::ifstream in(GRISTMILL_TEST_DIR "/golden/gguf/" + name + ".gguf", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string with_key(std::string file, const std::string& key, const std::string& other) {
  EXPECT_EQ(key.size(), other.size());
  const size_t at = file.find(key);
  EXPECT_NE(at, std::string::npos) << key;
  if (at != std::string::npos) file.replace(at, key.size(), other);
  return file;
}

TEST(GgufDecoder, TheWidthOfMiniMaxsExpertsHasTwoNames) {
  const TemporaryFolder folder;
  const std::string both = fixture("minimax_m2"), expert = "minimax-m2.expert_feed_forward_length",
                    plain = "minimax-m2.feed_forward_length";
  const int width = load_model(folder.write("both.gguf", both), {}).config.ffn;
  EXPECT_EQ(width, 20);
  const std::string old = with_key(both, expert, "minimax-m2.xxxxxx_feed_forward_length");
  EXPECT_EQ(load_model(folder.write("old.gguf", old), {}).config.ffn, width);
  EXPECT_NE(error_of([&] {
              load_model(folder.write("none.gguf", with_key(old, plain, "minimax-m2.feed_forward_xxxxxx")), {});
            }).find("feed_forward_length"),
            std::string::npos);
}

TEST(GgufDecoder, AnyNumberOfLayersThatTheFileDoesNotHoldIsRefused) {
  const TemporaryFolder folder;
  std::string file = fixture("qwen3");
  const std::string key = "qwen3.block_count";
  const size_t at = file.find(key) + key.size() + 4;  // behind the value's type
  for (const uint32_t layers : {0u, 3u, 1000000u, 0xffffffffu}) {
    std::memcpy(file.data() + at, &layers, sizeof layers);
    EXPECT_NE(error_of([&] { load_model(folder.write("model.gguf", file), {}); }), "") << layers;
  }
}

}  // namespace
}  // namespace gristmill::model
