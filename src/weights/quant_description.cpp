#include "weights/quant_description.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

constexpr std::string_view kStem = "quant_model_description", kEnding = ".json";

constexpr std::pair<std::string_view, QuantType> kTypes[] = {{"FLOAT", QuantType::plain},
                                                             {"W8A8", QuantType::w8a8},
                                                             {"W8A8_DYNAMIC", QuantType::w8a8_dynamic},
                                                             {"W8A8_MIX", QuantType::w8a8_mix},
                                                             {"W4A8_DYNAMIC", QuantType::w4a8_dynamic},
                                                             {"W8A16", QuantType::w8a16}};

std::string supported_types() {
  std::string list;
  for (const auto& [name, type] : kTypes) list += cat(list.empty() ? "" : ", ", name);
  return list;
}

/// Keys that are about the whole checkpoint and not names of tensors.
bool is_global(std::string_view key) {
  constexpr std::string_view kGlobals[] = {
      "version",       "model_quant_type", "group_size",    "metadata",           "optional",
      "kv_cache_type", "kv_quant_type",    "fa_quant_type", "indexer_quant_type", "reduce_quant_type"};
  return std::find(std::begin(kGlobals), std::end(kGlobals), key) != std::end(kGlobals) || key.ends_with(".quant_type");
}

/// Rotations that a model must apply while it runs; those folded into weights need nothing.
bool has_online_rotations(const Json& metadata) {
  const Json* const quarot = metadata.find("quarot");
  if (quarot == nullptr) return false;
  for (const char* const part : {"heads_rotation", "kronecker_rotation"}) {
    const Json* const rotation = quarot->find(part);
    const Json* const layers = rotation == nullptr ? nullptr : rotation->find("layers");
    if (layers != nullptr && (!layers->array.empty() || !layers->object.empty())) return true;
  }
  return false;
}

}  // namespace

const char* name_of(QuantType type) {
  for (const auto& [name, each] : kTypes)
    if (each == type) return name.data();
  return "?";
}

std::shared_ptr<const QuantDescription> QuantDescription::find(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != std::filesystem::end(it);
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kStem) && name.ends_with(kEnding)) names.push_back(name);
  }
  if (error) throw Error(cat(folder, ": cannot be read: ", error.message()));
  if (names.empty()) return nullptr;
  const std::string plain = cat(kStem, kEnding);
  if (names.size() > 1 && std::find(names.begin(), names.end(), plain) == names.end())
    throw Error(cat(folder, ": several ", kStem, "*.json; leave one of them"));
  const std::string chosen = names.size() == 1 ? names[0] : plain;
  return std::shared_ptr<const QuantDescription>(
      new QuantDescription((std::filesystem::path(folder) / chosen).string()));
}

QuantDescription::QuantDescription(std::string path) : path_(std::move(path)) {
  const MappedFile file(path_);
  const Json root = parse_json(path_, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  if (root.kind != Json::Kind::object)
    throw Error(cat(path_, ": must be an object, not ", gristmill::name_of(root.kind)));
  for (const auto& [key, value] : root.object) {
    if (key == "group_size") {
      constexpr int64_t kLargest = 1 << 20;
      if (!value.is_integer || value.integer < 0 || value.integer > kLargest)
        throw Error(cat(path_, ": key \"group_size\": must be a whole number from 0 to ", kLargest));
      group_size_ = static_cast<int>(value.integer);
    } else if ((key == "kv_cache_type" || key == "kv_quant_type") && value.string == "C8") {
      cache_scales_ = true;
    } else if (key == "metadata" && has_online_rotations(value)) {
      throw Error(cat(path_,
                      ": key \"metadata.quarot\": rotations applied while a model runs are not supported "
                      "(supported: rotations folded into the weights)"));
    } else if (!is_global(key) && value.kind == Json::Kind::string) {
      types_.emplace(key, value.string);
    }
  }
  if (types_.empty()) throw Error(cat(path_, ": names no tensor; it is no description of a quantized model"));
}

std::optional<QuantType> QuantDescription::type_of(std::string_view tensor) const {
  const auto at = types_.find(tensor);
  if (at == types_.end()) return std::nullopt;
  for (const auto& [name, type] : kTypes)
    if (name == at->second) return type;
  throw Error(cat(path_, ": tensor ", quoted(tensor), ": type ", quoted(at->second),
                  " is not supported (supported: ", supported_types(), ")"));
}

}  // namespace gristmill::weights
