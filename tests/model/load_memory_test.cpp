// What loading takes beside the packed weights: a window of the file, not the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>

#include "device/memory_weight.h"
#include "model/golden.h"
#include "weights/weight_views.h"

namespace gristmill::model {
namespace {

/// File pages in this process now, in bytes.
size_t mapped_pages() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0, shared = 0;
  statm >> total >> resident >> shared;
  return shared * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

/// Remembers the most pages that were there while weights were packed, and counts calls.
class Watch final : public Progress {
 public:
  void begin(std::string_view, uint64_t total) override { total_ = total; }
  void advance(uint64_t units) override {
    done_ += units;
    largest = std::max<size_t>(largest, mapped_pages());
    ++calls;
  }
  void end() override { complete = done_ == total_; }

  std::atomic<size_t> largest{0};
  std::atomic<int> calls{0};
  bool complete = false;

 private:
  uint64_t total_ = 0;
  std::atomic<uint64_t> done_{0};
};

TEST(LoadMemory, APassOverTheFileKeepsAWindowOfIt) {
  // On a disk: pages of a memory file system would count as mapped for as long as the file is there.
  const std::string path = cat("/var/tmp/gristmill-load-", ::getpid(), ".safetensors");
  constexpr int64_t kColumns = 4096, kExpertRows = 4096, kExperts = 8;
  constexpr size_t kFileBytes = 2 * kColumns * kExpertRows * kExperts;  // 256 MiB, one matrix
  {
    std::string header = "{";
    for (int64_t e = 0; e < kExperts; ++e)
      header +=
          cat(e == 0 ? "" : ",", "\"e", e, "\":{\"dtype\":\"BF16\",\"shape\":[", kExpertRows, ",", kColumns,
              "],\"data_offsets\":[", e * 2 * kColumns * kExpertRows, ",", (e + 1) * 2 * kColumns * kExpertRows, "]}");
    header += "}";
    std::ofstream out(path, std::ios::binary);
    const uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header;
    const std::string chunk(1 << 20, '\x3c');
    for (size_t i = 0; i < kFileBytes / chunk.size(); ++i) out << chunk;
    ASSERT_TRUE(out.good()) << path;
  }
  const auto file = weights::SafetensorsFile::open(path);
  std::remove(path.c_str());
  std::vector<std::shared_ptr<const device::WeightSource>> parts;
  for (int64_t e = 0; e < kExperts; ++e)
    parts.push_back(weights::make_weight_source(file, cat("e", e), weights::ReadAs::compact));
  device::ProgramBuilder builder;
  const device::WeightRef table = builder.weight(weights::concatenate_rows("experts", parts));
  const device::Value x = builder.embed(table);
  const auto norm =
      std::make_shared<device::testing::MemoryWeight>("norm", 1, kColumns, std::vector<float>(kColumns, 1.0f));
  builder.head(x, {builder.weight(norm), 1e-5f}, table);
  const auto program = std::make_shared<const device::Program>(std::move(builder).build());

  const auto backend = device::make_cpu_backend(2, device::ActivationMode::int8);
  const auto executable = backend->compile(program, {8, 1, 1, 64}, {DType::bf16, 16});
  Watch watch;
  device::BindOptions options;
  options.num_blocks = 4;
  options.progress = &watch;
  const size_t before = mapped_pages();
  executable->bind(options);
  EXPECT_TRUE(watch.complete);
  EXPECT_GT(watch.calls.load(), 16);
  std::printf("%.0f MiB of file, at most %.0f MiB of it mapped while it was packed\n", kFileBytes / 1048576.0,
              static_cast<double>(watch.largest - std::min<size_t>(before, watch.largest)) / 1048576.0);
  EXPECT_GT(watch.largest.load(), before);
  EXPECT_LT(watch.largest.load(), before + kFileBytes / 2);
}

}  // namespace
}  // namespace gristmill::model
