#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/model.h"

namespace gristmill::model {

/// config.json of a Hugging Face folder. Keys are looked up in its "text_config", if it has one, then at the top; null
/// counts as absent. Every failure is an Error naming file and key.
class HfConfig {
 public:
  /// `overrides` is empty or a JSON object that is merged into the file's, objects member by member. What stands at its
  /// top also replaces a key of "text_config" that the file has only there; lists with an entry per layer are cut to an
  /// overridden "num_hidden_layers".
  explicit HfConfig(const std::string& folder, const std::string& overrides = "");
  /// Keys that come from elsewhere; `path` is what messages name.
  HfConfig(std::string path, Json root) : path_(std::move(path)), root_(std::move(root)) {}

  const std::string& folder() const { return folder_; }  ///< empty: not read from a folder
  const std::string& path() const { return path_; }
  /// The first of "architectures".
  std::string architecture() const;
  bool is_nested() const { return root_.find("text_config") != nullptr; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;
  /// 1 .. most.
  int size(std::string_view key, std::optional<int64_t> otherwise = std::nullopt, int64_t most = 1 << 20) const;
  double positive(std::string_view key, std::optional<double> otherwise = std::nullopt) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string string(std::string_view key, std::optional<std::string> otherwise = std::nullopt) const;
  /// Whole numbers of any sign; empty when absent.
  std::vector<int64_t> integers(std::string_view key) const;
  /// Empty when absent.
  std::vector<std::string> strings(std::string_view key) const;

  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

 private:
  const Json& need(std::string_view key) const;
  void apply(const std::string& overrides);

  std::string folder_, path_;
  Json root_;
};

/// The shape that all decoders share ("num_hidden_layers" and so on), rope scaling resolved into frequencies. The width
/// of the MLP is the architecture's business.
ModelConfig read_decoder_config(const HfConfig& keys);

/// How many experts a mixture has: "num_experts", or as transformers 5 may write it "num_local_experts"; 0 when neither
/// is there.
int read_experts(const HfConfig& keys);

/// Lowers the context to the window of sliding-window attention, within which it is ordinary attention.
void apply_sliding_window(const HfConfig& keys, ModelConfig* config);

/// What "quantization_config" says of the weights.
struct HfQuantization {
  enum class Kind : uint8_t {
    none,
    fp8_blocks,    ///< FP8 with a scale per block (NAME_scale_inv)
    fp8_rows,      ///< FP8 with one scale for all, or for each row (X.weight_scale)
    int8_dynamic,  ///< int8 with a scale per row; activations are quantized per token
  };
  Kind kind = Kind::none;
  int block_rows = 128;
  int block_columns = 128;
};
/// Throws Error for any other quantization, naming the key and what is supported.
HfQuantization read_quantization(const HfConfig& keys);

}  // namespace gristmill::model
