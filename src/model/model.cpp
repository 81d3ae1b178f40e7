#include "model/model.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/checksum.h"
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

/// What in the options decides about weights.
std::string identity_of(const BuildOptions& options) {
  return cat("exact ", options.exact, ", quantization \"", options.quantization, "\", float linears \"",
             options.float_linears, "\"\n");
}

/// The files of a folder that say how its tensors are to be read.
std::string identity_of_description(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != std::filesystem::end(it);
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".json") && (name.starts_with("config") || name.starts_with("quant"))) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::string all;
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (std::error_code ignored; std::filesystem::file_size(path, ignored) == 0 || ignored) continue;
    all += cat(name, " ", digest(weights::MappedFile(path).text()), "\n");
  }
  return all;
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
  std::string identity;
  if (tensors != nullptr)
    identity = cat(tensors->identity(), identity_of_description(path), identity_of(options), "overrides ",
                   digest(options.hf_overrides), "\n");
  Model model = architecture->load({std::move(keys), std::move(config), std::move(tensors), false}, options);
  model.identity = std::move(identity);
  return model;
}

Model load_gguf(const std::string& path, const BuildOptions& options) {
  const std::shared_ptr<const weights::GgufFile> file = weights::GgufFile::open(path);
  const std::string_view name = file->string("general.architecture");
  const HfArchitecture* const architecture = name == "llama" ? nullptr : find_architecture(hf_class_of_gguf(name));
  if (architecture == nullptr && name != "llama")
    throw Error(cat(path, ": key \"general.architecture\": ", weights::quoted(name),
                    " is not supported (supported: ", kGgufArchitectures, ")"));
  Model model =
      architecture == nullptr ? load_llama(file, options) : architecture->load(open_gguf_decoder(file), options);
  model.identity = file->identity() + identity_of(options);
  return model;
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
