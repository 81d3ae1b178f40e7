#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "model/golden.h"
#include "weights/gguf_bytes.h"

namespace gristmill::model {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::GgufBytes;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A llama of float32 weights whose keys and tensors a test may change before it is written. Element i of each tensor
/// is i, so that rows can be told apart.
struct LlamaFile {
  static constexpr uint64_t kHidden = 8, kFfn = 12, kVocabulary = 5, kHeads = 2, kKvHeads = 1, kDim = 4;

  std::map<std::string, std::function<void(GgufBytes&, const std::string&)>> keys;
  std::vector<std::pair<std::string, std::vector<uint64_t>>> tensors;  // dimensions fastest first

  LlamaFile() {
    text("general.architecture", "llama");
    number("block_count", 2).number("context_length", 64).number("embedding_length", kHidden);
    number("feed_forward_length", kFfn).number("attention.head_count", kHeads);
    number("attention.head_count_kv", kKvHeads);
    real("attention.layer_norm_rms_epsilon", 1e-5f);
    tensors = {{"token_embd.weight", {kHidden, kVocabulary}}, {"output_norm.weight", {kHidden}}};
    for (int i = 0; i < 2; ++i) {
      const auto add = [&](const char* name, std::vector<uint64_t> dims) {
        tensors.emplace_back(cat("blk.", i, ".", name, ".weight"), std::move(dims));
      };
      add("attn_norm", {kHidden});
      add("attn_q", {kHidden, kHeads * kDim});
      add("attn_k", {kHidden, kKvHeads * kDim});
      add("attn_v", {kHidden, kKvHeads * kDim});
      add("attn_output", {kHeads * kDim, kHidden});
      add("ffn_norm", {kHidden});
      add("ffn_gate", {kHidden, kFfn});
      add("ffn_up", {kHidden, kFfn});
      add("ffn_down", {kFfn, kHidden});
    }
  }

  LlamaFile& number(const std::string& key, uint64_t value) {
    keys["llama." + key] = [value](GgufBytes& b, const std::string& name) { b.key(name, 10, value); };
    return *this;
  }
  LlamaFile& real(const std::string& key, float value) {
    keys["llama." + key] = [value](GgufBytes& b, const std::string& name) { b.key(name, 6, value); };
    return *this;
  }
  LlamaFile& text(const std::string& key, const std::string& value) {
    keys[key] = [value](GgufBytes& b, const std::string& name) { b.string_key(name, value); };
    return *this;
  }
  LlamaFile& array(const std::string& key, const std::vector<int32_t>& values) {
    keys["llama." + key] = [values](GgufBytes& b, const std::string& name) {
      b.array_key(name, 5, values.size());
      for (const int32_t value : values) b.put(value);
    };
    return *this;
  }
  LlamaFile& without(const std::string& key) {
    keys.erase("llama." + key);
    return *this;
  }
  LlamaFile& tensor(const std::string& name, std::vector<uint64_t> dims) {
    for (auto& [existing, shape] : tensors)
      if (existing == name) {
        shape = std::move(dims);
        return *this;
      }
    tensors.emplace_back(name, std::move(dims));
    return *this;
  }
  LlamaFile& without_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const auto& each) { return each.first == name; });
    return *this;
  }

  std::string write(const TemporaryFolder& folder) const {
    GgufBytes b;
    b.header(tensors.size(), keys.size());
    for (const auto& [name, put] : keys) put(b, name);
    std::string data;
    for (const auto& [name, dims] : tensors) {
      uint64_t elements = 1;
      for (const uint64_t dim : dims) elements *= dim;
      b.tensor(name, dims, 0, data.size());
      for (uint64_t i = 0; i < elements; ++i) {
        const auto value = static_cast<float>(i + 1);
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      data.append((32 - data.size() % 32) % 32, '\0');
    }
    b.data(0);
    return folder.write("model.gguf", b.bytes + data);
  }
};

std::string load_error(const LlamaFile& file) {
  const TemporaryFolder folder;
  const std::string path = file.write(folder);
  const std::string error = error_of([&] { load_model(path, {}); });
  EXPECT_TRUE(error.empty() || error.find(path) != std::string::npos) << error;
  return error;
}

/// The first linear op of layer 0: q, k, v.
const device::LinearOp& qkv_of(const device::Program& program) {
  for (const device::Op& op : program.ops())
    if (const auto* linear = std::get_if<device::LinearOp>(&op)) return *linear;
  throw Error("no linear op");
}

std::vector<float> first_column(const device::WeightSource& source) {
  std::vector<float> values(static_cast<size_t>(source.rows() * source.columns())), column;
  source.read_f32(0, source.rows(), values.data());
  for (int64_t r = 0; r < source.rows(); ++r) column.push_back(values[static_cast<size_t>(r * source.columns())]);
  return column;
}

TEST(Llama, ReadsTheConfig) {
  const TemporaryFolder folder;
  const Model model = load_model(LlamaFile().write(folder), {});
  const ModelConfig& c = model.config;
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.hidden, 8);
  EXPECT_EQ(c.ffn, 12);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.kv_heads, 1);
  EXPECT_EQ(c.head_dim, 4);
  EXPECT_EQ(c.vocabulary, 5);
  EXPECT_EQ(c.context, 64);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
  EXPECT_TRUE(c.tied_embeddings);
  EXPECT_TRUE(c.rope_interleaved);
  EXPECT_THAT(c.rope.inv_freq, ElementsAre(1.0f, ::testing::FloatEq(0.01f)));
  EXPECT_EQ(model.program->vocabulary(), 5);
  EXPECT_EQ(model.program->caches().size(), 2u);
  EXPECT_EQ(model.program->taps(), 0);
}

TEST(Llama, TiesTheHeadOnlyWithoutAnOutputTensor) {
  const TemporaryFolder folder;
  const auto head_of = [](const Model& model) {
    return model.program->weight(std::get<device::HeadOp>(model.program->ops().back()).vocabulary).name();
  };
  EXPECT_EQ(head_of(load_model(LlamaFile().write(folder), {})), "token_embd.weight");
  const Model untied = load_model(LlamaFile().tensor("output.weight", {8, 5}).write(folder), {});
  EXPECT_EQ(head_of(untied), "output.weight");
  EXPECT_FALSE(untied.config.tied_embeddings);
}

TEST(Llama, PutsQueryAndKeyRowsBackIntoHalves) {
  const TemporaryFolder folder;
  const Model model = load_model(LlamaFile().write(folder), {});
  const device::LinearOp& qkv = qkv_of(*model.program);
  // Rows of the file start with 1, 9, 17, ...; each head of 4 has its rows 0, 2, then 1, 3.
  EXPECT_THAT(first_column(model.program->weight(qkv.linears[0].weight)), ElementsAre(1, 17, 9, 25, 33, 49, 41, 57));
  EXPECT_THAT(first_column(model.program->weight(qkv.linears[1].weight)), ElementsAre(1, 17, 9, 25));
  EXPECT_THAT(first_column(model.program->weight(qkv.linears[2].weight)), ElementsAre(1, 9, 17, 25));
}

TEST(Llama, LeavesRowsThatAreNotRotated) {
  const TemporaryFolder folder;
  LlamaFile file;
  file.number("attention.key_length", 6).number("attention.value_length", 6).number("rope.dimension_count", 4);
  for (int i = 0; i < 2; ++i) {
    file.tensor(cat("blk.", i, ".attn_q.weight"), {8, 12}).tensor(cat("blk.", i, ".attn_k.weight"), {8, 6});
    file.tensor(cat("blk.", i, ".attn_v.weight"), {8, 6}).tensor(cat("blk.", i, ".attn_output.weight"), {12, 8});
  }
  const Model model = load_model(file.write(folder), {});
  EXPECT_EQ(model.config.head_dim, 6);
  EXPECT_EQ(model.config.rope.inv_freq.size(), 2u);
  EXPECT_THAT(first_column(model.program->weight(qkv_of(*model.program).linears[1].weight)),
              ElementsAre(1, 17, 9, 25, 33, 41));
}

TEST(Llama, TakesBiasesAndReordersThoseOfQueriesAndKeys) {
  const TemporaryFolder folder;
  LlamaFile file;
  file.tensor("blk.0.attn_k.bias", {4}).tensor("blk.0.attn_v.bias", {4}).tensor("blk.1.ffn_down.bias", {8});
  const Model model = load_model(file.write(folder), {});
  const device::LinearOp& qkv = qkv_of(*model.program);
  EXPECT_FALSE(qkv.linears[0].bias.has_value());
  std::vector<float> bias(4);
  ASSERT_TRUE(qkv.linears[1].bias && qkv.linears[2].bias);
  model.program->weight(*qkv.linears[1].bias).read_f32(0, 1, bias.data());
  EXPECT_THAT(bias, ElementsAre(1, 3, 2, 4));
  model.program->weight(*qkv.linears[2].bias).read_f32(0, 1, bias.data());
  EXPECT_THAT(bias, ElementsAre(1, 2, 3, 4));
}

TEST(Llama, TapsTheEmbeddingsAndEveryLayer) {
  const TemporaryFolder folder;
  const Model model = load_model(LlamaFile().write(folder), {.exact = false, .tap_layers = true});
  EXPECT_EQ(model.program->taps(), 3);
  EXPECT_EQ(model.program->tap_width(), 8);
}

TEST(Llama, ResolvesRopeScaling) {
  const TemporaryFolder folder;
  LlamaFile linear;
  linear.text("llama.rope.scaling.type", "linear").real("rope.scaling.factor", 4);
  EXPECT_FLOAT_EQ(load_model(linear.write(folder), {}).config.rope.inv_freq[0], 0.25f);
  EXPECT_FLOAT_EQ(load_model(LlamaFile().real("rope.scale_linear", 2).write(folder), {}).config.rope.inv_freq[0], 0.5f);
  LlamaFile divided;
  divided.tensor("rope_freqs.weight", {2});  // divisors 1 and 2
  EXPECT_FLOAT_EQ(load_model(divided.write(folder), {}).config.rope.inv_freq[1], 0.005f);
  LlamaFile yarn;
  yarn.text("llama.rope.scaling.type", "yarn").real("rope.scaling.factor", 4);
  yarn.number("rope.scaling.original_context_length", 16);
  EXPECT_NEAR(load_model(yarn.write(folder), {}).config.rope.magnitude, 1 + 0.1 * std::log(4.0), 1e-6);
  EXPECT_THAT(load_error(LlamaFile().text("llama.rope.scaling.type", "longrope")), HasSubstr("\"longrope\""));
  EXPECT_THAT(load_error(LlamaFile().text("llama.rope.scaling.type", "linear")), HasSubstr("rope.scaling.factor"));
  EXPECT_THAT(load_error(LlamaFile().tensor("rope_freqs.weight", {3})), HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(load_error(LlamaFile().real("rope.freq_base", 0)), HasSubstr("rope.freq_base"));
  EXPECT_THAT(load_error(LlamaFile().number("rope.dimension_count", 6)), HasSubstr("rope.dimension_count"));
  EXPECT_THAT(load_error(LlamaFile().number("rope.dimension_count", 3)), HasSubstr("rope.dimension_count"));
}

TEST(Llama, TakesArraysThatAreTheSameForAllLayers) {
  const TemporaryFolder folder;
  EXPECT_EQ(load_model(LlamaFile().array("attention.head_count_kv", {1, 1}).write(folder), {}).config.kv_heads, 1);
  EXPECT_THAT(load_error(LlamaFile().array("attention.head_count_kv", {1, 2})),
              AllOf(HasSubstr("head_count_kv"), HasSubstr("differs")));
  EXPECT_THAT(load_error(LlamaFile().array("attention.head_count", {})), HasSubstr("empty array"));
}

TEST(Llama, LowersTheContextToASlidingWindow) {
  const TemporaryFolder folder;
  EXPECT_EQ(load_model(LlamaFile().number("attention.sliding_window", 32).write(folder), {}).config.context, 32);
  EXPECT_EQ(load_model(LlamaFile().number("attention.sliding_window", 99).write(folder), {}).config.context, 64);
}

TEST(Llama, NamesTheKeyThatIsMissingOrImpossible) {
  for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"})
    EXPECT_THAT(load_error(LlamaFile().without(key)), AllOf(HasSubstr(key), HasSubstr("missing")));
  for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.head_count_kv"}) {
    EXPECT_THAT(load_error(LlamaFile().number(key, 0)), AllOf(HasSubstr(key), HasSubstr("out of range")));
    EXPECT_THAT(load_error(LlamaFile().number(key, uint64_t{1} << 40)),
                AllOf(HasSubstr(key), HasSubstr("out of range")));
  }
  EXPECT_THAT(load_error(LlamaFile().number("attention.head_count", 3)), HasSubstr("attention.head_count"));
  EXPECT_THAT(load_error(LlamaFile().number("attention.head_count", 4).number("attention.head_count_kv", 3)),
              HasSubstr("cannot share 3"));
  EXPECT_THAT(load_error(LlamaFile().number("attention.value_length", 2)), HasSubstr("value_length"));
  EXPECT_THAT(load_error(LlamaFile().real("attention.layer_norm_rms_epsilon", NAN)), HasSubstr("epsilon"));
  EXPECT_THAT(load_error(LlamaFile().number("expert_count", 8)), HasSubstr("experts are not supported"));
}

TEST(Llama, NamesTheTensorThatIsMissingOrOfAnotherShape) {
  const auto tensors = LlamaFile().tensors;
  for (const auto& [name, dims] : tensors) {
    EXPECT_THAT(load_error(LlamaFile().without_tensor(name)), AllOf(HasSubstr(name), HasSubstr("missing")));
    if (name == "token_embd.weight") continue;  // its rows say how many tokens there are
    std::vector<uint64_t> other = dims;
    other.back() += 1;
    EXPECT_THAT(load_error(LlamaFile().tensor(name, other)), AllOf(HasSubstr(name), HasSubstr("has shape")));
  }
  EXPECT_THAT(load_error(LlamaFile().number("vocab_size", 6)),
              AllOf(HasSubstr("token_embd.weight"), HasSubstr("[5, 8]"), HasSubstr("[6, 8]")));
}

TEST(Llama, RefusesTensorsThatItWouldIgnore) {
  EXPECT_THAT(load_error(LlamaFile().tensor("blk.0.attn_q_norm.weight", {4})),
              AllOf(HasSubstr("attn_q_norm"), HasSubstr("not known")));
}

TEST(LoadModel, ListsTheSupportedArchitectures) {
  EXPECT_THAT(load_error(LlamaFile().text("general.architecture", "bert")),
              AllOf(HasSubstr("\"bert\""), HasSubstr("supported: llama")));
}

}  // namespace
}  // namespace gristmill::model
