#pragma once
#include <memory>
#include <string>

#include "device/program.h"
#include "device/weight_source.h"
#include "model/load_format.h"
#include "weights/checkpoint.h"

namespace gristmill::model {

/// The shape of a decoder, from any container. Checked: every number is positive and consistent.
struct ModelConfig {
  std::string architecture;
  int layers = 0;
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int context = 0;  ///< longest sequence it was trained for
  float norm_eps = 1e-5f;
  device::Rope rope;
  bool rope_interleaved = false;  ///< the file's Q/K rows are ordered for adjacent pairs (GGUF llama)
  bool tied_embeddings = false;
};

struct BuildOptions {
  bool exact = false;  ///< float32 weights
  /// "": as the checkpoint says. "ascend", "fp8", "compressed-tensors", "gguf": the same, and Error where the
  /// checkpoint is something else. "w8a8", "w4a8": float linears are quantized at load, by the architecture's usual
  /// recipe.
  std::string quantization{};
  /// "", "bf16": FLOAT linears of an ascend checkpoint stay as they are. "int8", "int4": they are quantized at load.
  std::string float_linears{};
  bool tap_layers = false;  ///< tap 0 = embeddings, tap i + 1 = after layer i
  /// Taps what each router of experts reads, layer after layer. For tests of routing; not together with tap_layers.
  bool tap_router_inputs = false;
  /// What linears read is watched (Program::watched()); for calibration.
  bool watch_inputs = false;
  LoadFormat load_format = LoadFormat::automatic;
  /// Of the layers' matrices under LoadFormat::dummy: bf16, i8_group or i4_group. Embeddings, head, routers and other
  /// small ones are bf16.
  device::ComputeClass dummy_class = device::ComputeClass::bf16;
  /// A JSON object merged into a folder's config.json (--hf-overrides); empty: nothing.
  std::string hf_overrides{};
};

struct Model {
  ModelConfig config;
  std::shared_ptr<const device::Program> program;
  /// Names everything that the weights are made from: files, wherever they lie, and options. Empty: not known, or
  /// made up.
  std::string identity{};
};

/// Opens `path` (a GGUF file, or a Hugging Face folder of config.json and safetensors) and builds its Program; no
/// tensor data beyond small scales is read yet. Throws Error naming file, key or tensor; an architecture without a
/// builder is refused with the list of those there are.
Model load_model(const std::string& path, const BuildOptions& options);

}  // namespace gristmill::model
