// Any bytes as a safetensors file: open it and read the ends of all weights that were let through, also as FP8 blocks.
// Only Error may come out.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "weights/gguf_blocks.h"
#include "weights/safetensors.h"
#include "weights/weight_views.h"

namespace {

using namespace gristmill;

constexpr int64_t kMostValues = 1 << 16;  // read of one tensor

void read_ends(const device::WeightSource& source) {
  const int64_t rows = std::min<int64_t>(source.rows(), kMostValues / std::max<int64_t>(source.columns(), 1));
  std::vector<float> values(static_cast<size_t>(rows * source.columns()));
  source.read_f32(0, rows, values.data());
  source.read_f32(source.rows() - rows, rows, values.data());
  source.release();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = [] {
    set_log_level(LogLevel::error);
    return memfd_create("fuzz.safetensors", 0);
  }();
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) return 0;
  try {
    const auto file = weights::SafetensorsFile::open(cat("/proc/self/fd/", fd));
    for (const std::string& name : file->names()) {
      for (const weights::ReadAs read_as : {weights::ReadAs::compact, weights::ReadAs::exact}) {
        if (weights::is_weight_type(file->tensor(name).type))
          read_ends(*weights::make_weight_source(file, name, read_as));
        if (!file->contains(name + "_scale_inv")) continue;
        try {
          read_ends(*weights::make_block_fp8_source(file, name, name + "_scale_inv", 2, 3, read_as));
        } catch (const Error&) {
        }
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
