#include "model/model.h"

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "model/architectures.h"
#include "model/gguf_decoder.h"
#include "model/hf_config.h"
#include "weights/gguf.h"
#include "weights/mapped_file.h"
#include "weights/safetensors_folder.h"

namespace gristmill::model {
namespace {

constexpr const char* kGgufArchitectures = "llama, qwen2, qwen3, qwen3moe, qwen35, qwen35moe, minimax-m2";

/// The first of config.json's "architectures" -> its builder.
struct HfArchitecture {
  std::string_view name;
  Model (*load)(DecoderFiles files, const BuildOptions& options);
};
constexpr HfArchitecture kHfArchitectures[] = {
    {"LlamaForCausalLM", load_llama_hf},     {"MistralForCausalLM", load_llama_hf},
    {"Qwen2ForCausalLM", load_llama_hf},     {"Qwen3ForCausalLM", load_qwen3},
    {"Qwen3MoeForCausalLM", load_qwen3},     {"Qwen3_5ForConditionalGeneration", load_qwen3_5},
    {"Qwen3_5ForCausalLM", load_qwen3_5},    {"Qwen3_5MoeForConditionalGeneration", load_qwen3_5},
    {"Qwen3_5MoeForCausalLM", load_qwen3_5}, {"MiniMaxM2ForCausalLM", load_minimax_m2},
};

const HfArchitecture* find_architecture(std::string_view name) {
  for (const HfArchitecture& each : kHfArchitectures)
    if (each.name == name) return &each;
  return nullptr;
}

Model load_folder(const std::string& path, const BuildOptions& options) {
  HfConfig keys(path, options.hf_overrides);
  const std::string name = keys.architecture();
  const HfArchitecture* const architecture = find_architecture(name);
  if (architecture == nullptr) {
    std::string supported;
    for (const HfArchitecture& each : kHfArchitectures) supported += cat(supported.empty() ? "" : ", ", each.name);
    keys.fail("architectures", cat(weights::quoted(name), " is not supported (supported: ", supported, ")"));
  }
  ModelConfig config = read_decoder_config(keys);
  std::shared_ptr<const weights::Checkpoint> tensors;
  if (options.load_format != LoadFormat::dummy) tensors = weights::SafetensorsFolder::open(path);
  return architecture->load({std::move(keys), std::move(config), std::move(tensors), false}, options);
}

Model load_gguf(const std::string& path, const BuildOptions& options) {
  const std::shared_ptr<const weights::GgufFile> file = weights::GgufFile::open(path);
  const std::string_view name = file->string("general.architecture");
  if (name == "llama") return load_llama(file, options);
  const HfArchitecture* const architecture = find_architecture(hf_class_of_gguf(name));
  if (architecture == nullptr)
    throw Error(cat(path, ": key \"general.architecture\": ", weights::quoted(name),
                    " is not supported (supported: ", kGgufArchitectures, ")"));
  return architecture->load(open_gguf_decoder(file), options);
}

}  // namespace

Model load_model(const std::string& path, const BuildOptions& options) {
  if (std::filesystem::is_directory(path)) {
    if (options.load_format == LoadFormat::gguf)
      throw Error(cat("--load-format gguf: ", path, " is a folder; name the GGUF file"));
    return load_folder(path, options);
  }
  if (options.load_format == LoadFormat::safetensors || options.load_format == LoadFormat::dummy)
    throw Error(cat("--load-format ", options.load_format == LoadFormat::dummy ? "dummy" : "safetensors", ": ", path,
                    " is not a Hugging Face folder"));
  if (!options.hf_overrides.empty())
    throw Error(cat("--hf-overrides: ", path, " is not a Hugging Face folder and has no config.json to override"));
  return load_gguf(path, options);
}

}  // namespace gristmill::model
