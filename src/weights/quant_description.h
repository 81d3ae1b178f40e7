#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace gristmill::weights {

/// How a matrix of an "ascend" (msmodelslim) checkpoint is stored; names are the description's.
enum class QuantType : uint8_t {
  plain,         ///< FLOAT
  w8a8,          ///< W8A8: static activations
  w8a8_dynamic,  ///< W8A8_DYNAMIC
  w8a8_mix,      ///< W8A8_MIX: the tensors of both; read as dynamic
  w4a8_dynamic,  ///< W4A8_DYNAMIC, per channel or in groups
  w8a16,         ///< W8A16
};
const char* name_of(QuantType type);

/// quant_model_description.json, which makes a folder an ascend checkpoint: the type of each tensor by its name, and a
/// few keys about all of them. Every failure is an Error naming file and key. Thread safe.
class QuantDescription {
 public:
  /// The description of a folder, null when it has none. quant_model_description_TYPE.json of older tools counts when
  /// it is the only one.
  static std::shared_ptr<const QuantDescription> find(const std::string& folder);

  const std::string& path() const { return path_; }
  /// Null when the description does not know the tensor. Throws Error for a type that is not supported.
  std::optional<QuantType> type_of(std::string_view tensor) const;
  /// Columns that share a scale of W4A8_DYNAMIC in groups; 0: none said.
  int group_size() const { return group_size_; }
  /// Whether K and V were meant to be cached as int8 with scales of their own (C8).
  bool has_cache_scales() const { return cache_scales_; }

 private:
  explicit QuantDescription(std::string path);

  std::string path_;
  std::map<std::string, std::string, std::less<>> types_;
  int group_size_ = 0;
  bool cache_scales_ = false;
};

}  // namespace gristmill::weights
