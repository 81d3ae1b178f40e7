#include "model/model.h"

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "model/architectures.h"
#include "model/hf_config.h"
#include "weights/gguf.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

/// general.architecture of a GGUF file -> its builder.
struct GgufArchitecture {
  std::string_view name;
  Model (*load)(const std::shared_ptr<const weights::GgufFile>& file, const BuildOptions& options);
};
constexpr GgufArchitecture kGgufArchitectures[] = {{"llama", load_llama}};

/// The first of config.json's "architectures" -> its builder.
struct HfArchitecture {
  std::string_view name;
  Model (*load)(HfConfig keys, const BuildOptions& options);
};
constexpr HfArchitecture kHfArchitectures[] = {
    {"LlamaForCausalLM", load_llama_hf},     {"MistralForCausalLM", load_llama_hf},
    {"Qwen2ForCausalLM", load_llama_hf},     {"Qwen3ForCausalLM", load_qwen3},
    {"Qwen3MoeForCausalLM", load_qwen3},     {"Qwen3_5ForConditionalGeneration", load_qwen3_5},
    {"Qwen3_5ForCausalLM", load_qwen3_5},    {"Qwen3_5MoeForConditionalGeneration", load_qwen3_5},
    {"Qwen3_5MoeForCausalLM", load_qwen3_5}, {"MiniMaxM2ForCausalLM", load_minimax_m2},
};

/// The entry of that name; throws Error listing those there are.
template <class Table>
const auto& find_architecture(const Table& table, std::string_view name, const std::string& where) {
  std::string supported;
  for (const auto& each : table) {
    if (each.name == name) return each;
    supported += cat(supported.empty() ? "" : ", ", each.name);
  }
  throw Error(cat(where, ": architecture ", weights::quoted(name), " is not supported (supported: ", supported, ")"));
}

}  // namespace

Model load_model(const std::string& path, const BuildOptions& options) {
  if (std::filesystem::is_directory(path)) {
    if (options.load_format == LoadFormat::gguf)
      throw Error(cat("--load-format gguf: ", path, " is a folder; name the GGUF file"));
    HfConfig keys(path, options.hf_overrides);
    const auto& architecture =
        find_architecture(kHfArchitectures, keys.architecture(), cat(keys.path(), ": key \"architectures\""));
    return architecture.load(std::move(keys), options);
  }
  if (options.load_format == LoadFormat::safetensors || options.load_format == LoadFormat::dummy)
    throw Error(cat("--load-format ", options.load_format == LoadFormat::dummy ? "dummy" : "safetensors", ": ", path,
                    " is not a Hugging Face folder"));
  if (!options.hf_overrides.empty())
    throw Error(cat("--hf-overrides: ", path, " is not a Hugging Face folder and has no config.json to override"));
  const std::shared_ptr<const weights::GgufFile> file = weights::GgufFile::open(path);
  return find_architecture(kGgufArchitectures, file->string("general.architecture"), path).load(file, options);
}

}  // namespace gristmill::model
