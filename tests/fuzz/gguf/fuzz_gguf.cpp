// Any bytes as a GGUF file: open it, read all that was let through, and load it as a model. Only Error may come out.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "model/model.h"
#include "weights/gguf.h"
#include "weights/gguf_blocks.h"
#include "weights/gguf_parse.h"

namespace {

using namespace gristmill;

constexpr int64_t kMostValues = 1 << 16;  // read of one tensor

void read_metadata(const std::string& path, const weights::GgufFile& file) {
  for (const weights::GgufKey& key : weights::parse_gguf(path).keys) {
    const auto attempt = [&](auto read) {
      try {
        read();
      } catch (const Error&) {
      }
    };
    attempt([&] { file.integer(key.name); });
    attempt([&] { file.number(key.name); });
    attempt([&] { file.boolean(key.name); });
    attempt([&] { std::string(file.string(key.name)); });
    attempt([&] { file.integers(key.name); });
    attempt([&] { file.numbers(key.name); });
    attempt([&] {
      size_t total = 0;
      for (const std::string_view text : file.strings(key.name))
        total += text.size() + static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
      if (total > size_t{1} << 40) std::abort();
    });
  }
}

void read_weights(const std::shared_ptr<const weights::GgufFile>& file) {
  for (const std::string& name : file->names()) {
    if (!weights::is_weight_type(file->tensor(name).type)) continue;
    const auto source = weights::make_weight_source(file, name, weights::ReadAs::compact);
    const int64_t rows = std::min<int64_t>(source->rows(), kMostValues / std::max<int64_t>(source->columns(), 1));
    const auto count = static_cast<size_t>(rows * source->columns());
    const int64_t first = source->rows() - rows;
    std::vector<float> values(count);
    source->read_f32(first, rows, values.data());
    const device::Encoding& encoding = source->encoding();
    if (encoding.cls == device::ComputeClass::f16 || encoding.cls == device::ComputeClass::bf16) {
      std::vector<uint16_t> bits(count);
      source->read_16(first, rows, bits.data());
    } else if (encoding.group > 0) {
      const size_t groups = count / static_cast<size_t>(encoding.group);
      std::vector<uint8_t> codes(count);
      std::vector<uint16_t> scales(groups), mins(groups);
      source->read_codes(first, rows, {codes.data(), scales.data(), encoding.has_min ? mins.data() : nullptr});
    }
    source->release();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = [] {
    set_log_level(LogLevel::error);
    return memfd_create("fuzz.gguf", 0);
  }();
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  const std::string path = cat("/proc/self/fd/", fd);
  try {
    const auto file = weights::GgufFile::open(path);
    read_metadata(path, *file);
    read_weights(file);
    model::load_model(path, {.exact = false, .tap_layers = true});
  } catch (const Error&) {
  }
  return 0;
}
