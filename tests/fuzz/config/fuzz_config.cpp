// Any text as the config.json of a folder with a few tensors; behind a zero byte, any text as --hf-overrides. Only
// Error may come out, or a model.
#include <stdlib.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "model/model.h"

namespace {

using namespace gristmill;

void write_file(const std::string& path, const void* data, size_t size) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) std::abort();
  if (size != 0 && std::fwrite(data, 1, size, file) != size) std::abort();
  std::fclose(file);
}

std::string make_folder() {
  set_log_level(LogLevel::error);
  char path[] = "/tmp/fuzz_config_XXXXXX";
  if (mkdtemp(path) == nullptr) std::abort();
  const std::string header = R"({"model.embed_tokens.weight":{"dtype":"BF16","shape":[8,4],"data_offsets":[0,64]},)"
                             R"("model.norm.weight":{"dtype":"F32","shape":[4],"data_offsets":[64,80]}})";
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header + std::string(80, '\1');
  write_file(std::string(path) + "/model.safetensors", bytes.data(), bytes.size());
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = make_folder();
  const void* const zero = size == 0 ? nullptr : std::memchr(data, 0, size);
  const size_t config_size = zero == nullptr ? size : static_cast<size_t>(static_cast<const uint8_t*>(zero) - data);
  write_file(folder + "/config.json", data, config_size);
  model::BuildOptions options;
  if (zero != nullptr)
    options.hf_overrides.assign(reinterpret_cast<const char*>(data) + config_size + 1, size - config_size - 1);
  try {
    model::load_model(folder, options);
  } catch (const Error&) {
  }
  return 0;
}
