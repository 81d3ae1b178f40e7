// What a Hugging Face folder may get wrong, and which keys mean the same.
#include "model/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "model/golden.h"
#include "weights/gguf_bytes.h"

namespace gristmill::model {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// One of our tiny checkpoints with a changed config.json.
class Folder {
 public:
  explicit Folder(const std::string& name) : source_(GRISTMILL_TEST_DIR "/golden/hf/" + name) {
    config = read(source_ + "/config.json");
    weights_ = read(source_ + "/model.safetensors");
  }
  /// Replaces a part that must be there.
  Folder& replace(const std::string& part, const std::string& by) {
    const size_t at = config.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    if (at != std::string::npos) config.replace(at, part.size(), by);
    return *this;
  }
  Folder& add(const std::string& members) { return replace("{\n", "{\n " + members + ",\n"); }
  /// The same for the weights; equally long, since offsets follow.
  Folder& rename_tensor(const std::string& name, const std::string& to) {
    EXPECT_EQ(name.size(), to.size());
    const size_t at = weights_.find("\"" + name + "\"");
    EXPECT_NE(at, std::string::npos) << name;
    if (at != std::string::npos) weights_.replace(at + 1, name.size(), to);
    return *this;
  }
  Model load() const {
    folder_.write("config.json", config);
    folder_.write("model.safetensors", weights_);
    return load_model(folder_.path(""), {});
  }
  std::string error() const {
    return error_of([&] { load(); });
  }
  std::string config;
  std::string& weights() { return weights_; }

 private:
  std::string source_, weights_;
  TemporaryFolder folder_;
};

TEST(HfConfig, ReadsTheShapeOfADecoder) {
  const Model model = Folder("qwen3").load();
  EXPECT_EQ(model.config.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(model.config.layers, 2);
  EXPECT_EQ(model.config.hidden, 32);
  EXPECT_EQ(model.config.heads, 4);
  EXPECT_EQ(model.config.kv_heads, 2);
  EXPECT_EQ(model.config.head_dim, 16);
  EXPECT_EQ(model.config.ffn, 48);
  EXPECT_EQ(model.config.vocabulary, 96);
  EXPECT_EQ(model.config.context, 512);
  EXPECT_TRUE(model.config.tied_embeddings);
  EXPECT_EQ(model.config.rope.inv_freq.size(), 8u);
}

TEST(HfConfig, ReadsNestedConfigsAndStates) {
  const Model model = Folder("qwen3_5_moe").load();
  EXPECT_EQ(model.config.architecture, "Qwen3_5MoeForConditionalGeneration");
  EXPECT_EQ(model.program->states().size(), 3u);
  EXPECT_EQ(model.program->caches().size(), 1u);
  EXPECT_EQ(model.config.rope.inv_freq.size(), 2u);
  // The interval says the same as the list.
  Folder other("qwen3_5_moe");
  const size_t first = other.config.find("\"layer_types\""), end = other.config.find(']', first);
  other.config.replace(first, end + 1 - first, "\"full_attention_interval\": 4");
  EXPECT_EQ(other.load().program->states().size(), 3u);
}

TEST(ModelIdentity, FollowsFilesAndOptionsAndNotThePath) {
  // What decides about weights is named: anything else would let weights of another model or reading pass.
  const std::string source = GRISTMILL_TEST_DIR "/golden/hf/llama";
  const auto made = [&](const std::function<void(const std::filesystem::path&)>& change, const BuildOptions& options) {
    const TemporaryFolder folder;
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(source + "/" + name, folder.path(name));
      std::filesystem::last_write_time(folder.path(name), std::filesystem::last_write_time(source + "/" + name));
    }
    change(folder.path(""));
    return load_model(folder.path(""), options).identity;
  };
  const auto nothing = [](const std::filesystem::path&) {};
  const std::string plain = made(nothing, {});
  EXPECT_FALSE(plain.empty());
  EXPECT_EQ(made(nothing, {}), plain) << "in another folder";
  EXPECT_EQ(load_model(source, {}).identity, plain);
  EXPECT_NE(made(nothing, {.exact = true}), plain);
  EXPECT_NE(made(nothing, {.quantization = "w8a8"}), plain);
  EXPECT_NE(made(nothing, {.quantization = "w8a8"}), made(nothing, {.quantization = "w4a8"}));
  EXPECT_NE(made(nothing, {.hf_overrides = R"({"rms_norm_eps": 0.001})"}), plain);
  const auto touched = [](const std::filesystem::path& folder) {
    std::filesystem::last_write_time(
        folder / "model.safetensors",
        std::filesystem::last_write_time(folder / "model.safetensors") + std::chrono::nanoseconds(1000));
  };
  EXPECT_NE(made(touched, {}), plain);
  const auto overwritten = [](const std::filesystem::path& folder) {
    const auto time = std::filesystem::last_write_time(folder / "model.safetensors");
    {
      std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('\x01');
    }
    std::filesystem::last_write_time(folder / "model.safetensors", time);
  };
  EXPECT_NE(made(overwritten, {}), plain) << "other bytes under the same time";
  const auto described = [](const std::filesystem::path& folder) {
    std::ofstream(folder / "quant_notes.json") << "{}";
  };
  EXPECT_NE(made(described, {}), plain);
  EXPECT_EQ(load_model(source, {.load_format = LoadFormat::dummy}).identity, "") << "made up, not read";
  EXPECT_FALSE(load_model(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", {}).identity.empty());
}

TEST(HfConfig, TakesRopeScalingInEitherForm) {
  Folder old("llama");
  const Model expected = old.load();
  const size_t first = old.config.find("\"rope_parameters\""), end = old.config.find('}', first);
  old.config.replace(first, end + 1 - first,
                     R"("rope_theta": 10000, "rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 32})");
  EXPECT_EQ(old.load().config.rope.inv_freq, expected.config.rope.inv_freq);
}

TEST(HfConfig, LowersTheContextToASlidingWindow) {
  EXPECT_EQ(Folder("mistral").add("\"sliding_window\": 100").load().config.context, 100);
  EXPECT_EQ(Folder("mistral").add("\"sliding_window\": null").load().config.context, 512);
  EXPECT_EQ(Folder("qwen2")
                .replace("\"use_sliding_window\": false", "\"sliding_window\": 9, \"use_sliding_window\": false")
                .load()
                .config.context,
            512);
}

TEST(HfConfig, RefusesAFifoWithoutWaitingForIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("config.json").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { HfConfig{folder.path("")}; }), HasSubstr("config.json: is not a regular file"));
}

TEST(HfConfig, NamesTheKeyThatIsMissingOrImpossible) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size",
                          "max_position_embeddings", "rms_norm_eps", "intermediate_size"}) {
    const std::string name = cat("\"", key, "\": ");
    EXPECT_THAT(Folder("llama").replace(name, cat("\"x_", key, "\": ")).error(),
                AllOf(HasSubstr("config.json"), HasSubstr(cat("\"", key, "\"")), HasSubstr("missing")));
    EXPECT_THAT(Folder("llama").replace(name, name + "-").error(), HasSubstr(cat("\"", key, "\"")));
    EXPECT_THAT(Folder("llama").replace(name, name + "\"x\", \"y\": ").error(), HasSubstr(cat("\"", key, "\"")));
  }
  EXPECT_THAT(Folder("llama").replace("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3").error(),
              HasSubstr("cannot share 3"));
  EXPECT_THAT(Folder("llama").replace("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"").error(),
              AllOf(HasSubstr("\"gelu\""), HasSubstr("supported: silu")));
  EXPECT_THAT(Folder("llama").replace("{", "[").error(), HasSubstr("config.json"));
  EXPECT_THAT(Folder("qwen3_5_moe").replace("\"full_attention\"", "\"mamba\"").error(),
              AllOf(HasSubstr("layer_types"), HasSubstr("\"mamba\"")));
  EXPECT_THAT(Folder("qwen3_5_moe").replace("\"num_experts\"", "\"x_experts\"").error(),
              AllOf(HasSubstr("config.json"), HasSubstr("key \"num_experts\": is missing")));
  EXPECT_THAT(Folder("qwen3_5_moe").replace("\"num_experts\": 6", "\"num_experts\": 5").error(),
              AllOf(HasSubstr("mlp.gate.weight"), HasSubstr("[6, 32]"), HasSubstr("[5, 32]")));
}

TEST(HfConfig, ListsWhatIsSupported) {
  EXPECT_THAT(Folder("llama").replace("LlamaForCausalLM", "GPT2LMHeadModel").error(),
              AllOf(HasSubstr("config.json"), HasSubstr("\"GPT2LMHeadModel\""),
                    HasSubstr("supported: LlamaForCausalLM"), HasSubstr("MiniMaxM2ForCausalLM")));
  EXPECT_THAT(Folder("llama").replace("\"architectures\"", "\"nothing\"").error(), HasSubstr("\"architectures\""));
  EXPECT_THAT(Folder("llama").replace("\"llama3\"", "\"longrope\"").error(),
              AllOf(HasSubstr("rope_parameters.rope_type"), HasSubstr("\"longrope\""), HasSubstr("llama3, yarn")));
  EXPECT_THAT(Folder("llama").replace("\"factor\"", "\"x\"").error(), HasSubstr("rope_parameters.factor"));
  EXPECT_THAT(Folder("llama").add(R"("quantization_config": {"quant_method": "gptq"})").error(),
              AllOf(HasSubstr("quant_method"), HasSubstr("\"gptq\""), HasSubstr("supported: fp8")));
  EXPECT_THAT(Folder("minimax_m2").add(R"("scoring_func": "softmax")").error(), HasSubstr("scoring_func"));
  EXPECT_THAT(Folder("minimax_m2").add(R"("attn_type_list": [1, 0])").error(), HasSubstr("attn_type_list"));
  EXPECT_THAT(Folder("minimax_m2_fp8").replace("weight_block_size", "other_block_size").error(),
              HasSubstr("weight_block_size"));
  const TemporaryFolder empty;
  EXPECT_THAT(error_of([&] { load_model(empty.path(""), {}); }), HasSubstr("config.json"));
}

TEST(HfConfig, ATiedHeadIsTheEmbeddingAndAnotherOneMustBeThere) {
  Folder tied("llama");  // it has a head of its own, which is then left aside
  tied.replace("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  EXPECT_TRUE(tied.load().config.tied_embeddings);
  EXPECT_FALSE(Folder("llama").load().config.tied_embeddings);
  EXPECT_TRUE(Folder("qwen3").load().config.tied_embeddings);
  EXPECT_THAT(Folder("qwen3").replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false").error(),
              AllOf(HasSubstr("\"lm_head.weight\""), HasSubstr("missing")));
}

TEST(HfConfig, ListsMissingAndSurplusTensorsTogether) {
  const std::string first = "model.layers.0.self_attn.q_proj.weight", second = "model.layers.1.mlp.up_proj.weight";
  const std::string error = Folder("llama")
                                .rename_tensor(first, "model.layers.0.self_attn.x_proj.weight")
                                .rename_tensor(second, "model.layers.1.mlp.xx_proj.weight")
                                .error();
  EXPECT_THAT(error, AllOf(HasSubstr(first), HasSubstr(second), HasSubstr("missing"), HasSubstr("x_proj.weight"),
                           HasSubstr("mlp.xx_proj.weight"), HasSubstr("not known"), Not(HasSubstr("k_proj"))));
  EXPECT_THAT(Folder("llama").replace("\"vocab_size\": 96", "\"vocab_size\": 97").error(),
              AllOf(HasSubstr("embed_tokens"), HasSubstr("[96, 32]"), HasSubstr("[97, 32]")));
  EXPECT_THAT(Folder("qwen2")
                  .rename_tensor("model.layers.0.self_attn.k_proj.bias", "model.layers.0.self_attn.k_proj.xias")
                  .error(),
              AllOf(HasSubstr("k_proj.bias"), HasSubstr("missing")));
}

/// Reproducible numbers below `most`.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  size_t below(size_t most) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state_ >> 33) % most;
  }

 private:
  uint64_t state_;
};

/// Overwrites, doubles or removes bytes of the first `length`.
void damage(std::string* text, size_t length, Dice* dice) {
  constexpr std::string_view kBytes = "0123456789-.eE{}[]\",:ntf \\\x01\xff";
  for (size_t n = 1 + dice->below(3); n > 0; --n) {
    const size_t at = dice->below(length);
    switch (dice->below(4)) {
      case 0:
        text->insert(at, 1, kBytes[dice->below(kBytes.size())]);
        break;
      case 1:
        text->erase(at, 1);
        break;
      default:
        (*text)[at] = kBytes[dice->below(kBytes.size())];
        break;
    }
  }
}

TEST(HfConfig, DamagedFilesAreRefusedOrLoad) {
  int refused = 0, loaded = 0;
  for (const char* name : {"llama", "qwen3_5_moe", "minimax_m2_fp8"}) {
    Dice dice(7);
    for (int i = 0; i < 400; ++i) {
      Folder folder(name);
      if (i % 2 == 0) {
        damage(&folder.config, folder.config.size(), &dice);
      } else {
        damage(&folder.weights(), 4000, &dice);  // the header, its length too
      }
      try {
        folder.load();
        ++loaded;
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
        ++refused;
      }
    }
    for (size_t length = 0; length < Folder(name).config.size(); length += 7) {
      Folder folder(name);
      folder.config.resize(length);
      EXPECT_THAT(folder.error(), HasSubstr("config.json")) << length;
    }
  }
  std::printf("damaged folders: %d refused, %d loaded\n", refused, loaded);
  EXPECT_GT(refused, 500);
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace gristmill::model
