#include "device/cpu/weight_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/checksum.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels.h"
#include "device/cpu/random_program.h"

namespace gristmill::device::cpu {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPayload = 2 * kCacheChunk + 4096 + 64;  // a last chunk that is not whole
const std::string kKey = "file 1 of the test\npacking 1 for test\n";

class WeightCache : public testing::Test {
 protected:
  WeightCache() {
    std::string name = testing::TempDir() + "gristmill_cache_XXXXXX";
    folder_ = ::mkdtemp(name.data());
    options_.directory = folder_ + "/weights";
    options_.identity = "a model\n";
    options_.most_bytes = 1ULL << 30;
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  }
  ~WeightCache() override { fs::remove_all(folder_); }

  void keep(const std::string& key = kKey) const {
    const std::atomic<bool> stop{false};
    keep_weights(options_, key, weights_, stop);
  }
  std::string path_of(const std::string& key = kKey) const {
    return options_.directory + "/" + digest(key) + ".weights";
  }
  std::unique_ptr<CachedWeights> find(const std::string& key = kKey) const {
    return find_cached_weights(options_, key, weights_.size());
  }
  /// Whether the file is there and holds just these weights.
  bool holds_them(const std::string& key = kKey) const {
    const auto found = find(key);
    std::vector<std::byte> chunk(kCacheChunk);
    for (size_t i = 0; found != nullptr && i < found->chunks(); ++i) {
      if (!found->read_chunk(i, chunk.data())) return false;
      if (std::memcmp(chunk.data(), weights_.data() + i * kCacheChunk, found->chunk_bytes(i)) != 0) return false;
    }
    return found != nullptr;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    std::error_code absent;
    for (const auto& entry : fs::directory_iterator(options_.directory, absent))
      all.push_back(entry.path().filename().string());
    return all;
  }
  /// Overwrites a part of the file.
  static void write_at(const std::string& path, size_t offset, const void* bytes, size_t count) {
    const int file = ::open(path.c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(file, bytes, count, static_cast<off_t>(offset)), static_cast<ssize_t>(count));
    ::close(file);
  }
  static std::vector<std::byte> read_at(const std::string& path, size_t offset, size_t count) {
    std::vector<std::byte> bytes(count);
    const int file = ::open(path.c_str(), O_RDONLY);
    EXPECT_EQ(::pread(file, bytes.data(), count, static_cast<off_t>(offset)), static_cast<ssize_t>(count));
    ::close(file);
    return bytes;
  }
  static size_t header_bytes() { return 48 + (kKey.size() + 7) / 8 * 8 + 3 * 8; }

  std::string folder_;
  WeightCacheOptions options_;
  std::vector<std::byte> weights_ = std::vector<std::byte>(kPayload);
};

TEST_F(WeightCache, GivesBackWhatWasKept) {
  EXPECT_EQ(find(), nullptr);
  keep();
  EXPECT_TRUE(holds_them());
  const Region mapped = find()->map();
  EXPECT_EQ(std::memcmp(mapped.data(), weights_.data(), kPayload), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped.data()) % kPayloadAlign, 0u);
  EXPECT_EQ(names().size(), 1u);
}

TEST_F(WeightCache, IsMissedByOtherKeysAndSizes) {
  keep();
  EXPECT_EQ(find(kKey + "x"), nullptr);
  EXPECT_TRUE(holds_them());
  EXPECT_EQ(find_cached_weights(options_, kKey, kPayload - 64), nullptr);
  EXPECT_EQ(names().size(), 0u) << "a file of this key and another size is wrong";
}

TEST_F(WeightCache, AFileUnderAnothersNameIsRemoved) {
  const std::string other = "file 1 of the test\npacking 1 for tess\n";
  ASSERT_EQ(other.size(), kKey.size());
  keep();
  fs::rename(path_of(), path_of(other));
  EXPECT_EQ(find(other), nullptr);
  EXPECT_EQ(names().size(), 0u);
}

TEST_F(WeightCache, AFileOfAnyOtherLengthIsRemoved) {
  keep();
  const size_t whole = fs::file_size(path_of());
  fs::rename(path_of(), folder_ + "/good");
  for (const size_t length : {size_t{0}, size_t{1}, size_t{47}, size_t{48}, header_bytes() - 1, header_bytes(),
                              kPayloadAlign, whole - 1, whole + 1, whole * 2}) {
    fs::copy_file(folder_ + "/good", path_of());
    fs::resize_file(path_of(), length);
    EXPECT_EQ(find(), nullptr) << length;
    EXPECT_EQ(names().size(), 0u) << length;
  }
}

TEST_F(WeightCache, AnyFlippedBitOfTheHeaderIsFound) {
  keep();
  const std::string good = folder_ + "/good";
  fs::rename(path_of(), good);
  for (size_t at = 0; at < header_bytes(); ++at) {
    fs::create_hard_link(good, path_of());
    const std::byte right = read_at(good, at, 1)[0], wrong = right ^ static_cast<std::byte>(1U << at % 8);
    write_at(good, at, &wrong, 1);
    EXPECT_EQ(find(), nullptr) << at;
    EXPECT_FALSE(fs::exists(path_of())) << at;
    write_at(good, at, &right, 1);
  }
  fs::rename(good, path_of());
  EXPECT_TRUE(holds_them());
}

TEST_F(WeightCache, AHeaderThatLiesUnderARightChecksumIsRefused) {
  const auto lie = [&](size_t offset, auto value) {
    keep();
    std::vector<std::byte> header = read_at(path_of(), 0, header_bytes());
    std::memcpy(header.data() + offset, &value, sizeof value);
    std::memset(header.data() + 40, 0, 8);
    const uint64_t sum = checksum(header);
    std::memcpy(header.data() + 40, &sum, 8);
    write_at(path_of(), 0, header.data(), header.size());
    EXPECT_EQ(find(), nullptr) << offset << " " << value;
    EXPECT_EQ(names().size(), 0u);
  };
  for (const uint32_t version : {0u, kCacheFormat + 1, ~0u}) lie(8, version);
  for (const uint32_t key_bytes : {0u, 1u, 1u << 30, ~0u}) lie(12, key_bytes);
  for (const size_t field : {16, 24, 32})
    for (const uint64_t value : {uint64_t{0}, uint64_t{64}, uint64_t{kPayload} * 2, uint64_t{1} << 63, ~uint64_t{0}})
      lie(field, value);
  lie(48, uint64_t{0});  // of the key
}

TEST_F(WeightCache, AnythingButARegularFileIsRefused) {
  fs::create_directories(options_.directory);
  ASSERT_EQ(::mkfifo(path_of().c_str(), 0600), 0);
  EXPECT_EQ(find(), nullptr);
  fs::create_directory(path_of());
  EXPECT_EQ(find(), nullptr);
  fs::remove_all(path_of());
  fs::create_symlink(path_of(), path_of());
  EXPECT_EQ(find(), nullptr);
}

TEST_F(WeightCache, DamagedChunksAreToldFromWholeOnes) {
  keep();
  const size_t start = cache_payload_offset(kKey, kPayload);
  for (const size_t at : {size_t{0}, kCacheChunk - 1, kCacheChunk, kPayload - 1}) {
    const std::byte right = read_at(path_of(), start + at, 1)[0], wrong = right ^ std::byte{0x10};
    write_at(path_of(), start + at, &wrong, 1);
    const auto found = find();
    ASSERT_NE(found, nullptr);
    std::vector<std::byte> chunk(kCacheChunk);
    const Region mapped = found->map();
    for (size_t i = 0; i < found->chunks(); ++i) {
      EXPECT_EQ(found->read_chunk(i, chunk.data()), i != at / kCacheChunk) << i << " " << at;
      EXPECT_EQ(found->check_chunk(i, mapped.data()), i != at / kCacheChunk) << i << " " << at;
    }
    write_at(path_of(), start + at, &right, 1);
  }
  // Two chunks of the same length in each other's place.
  const std::vector<std::byte> first = read_at(path_of(), start, kCacheChunk);
  const std::vector<std::byte> second = read_at(path_of(), start + kCacheChunk, kCacheChunk);
  write_at(path_of(), start, second.data(), kCacheChunk);
  write_at(path_of(), start + kCacheChunk, first.data(), kCacheChunk);
  EXPECT_FALSE(holds_them());
}

TEST_F(WeightCache, TheLeastRecentlyUsedMakeRoomAndForeignFilesStay) {
  const size_t one = cache_payload_offset(kKey, kPayload) + kPayload;
  options_.most_bytes = 2 * one + one / 2;
  fs::create_directories(options_.directory);
  std::ofstream(options_.directory + "/notes.weights") << std::string(3 * one, 'x');
  const auto age = [&](const std::string& key, int hours) {
    fs::last_write_time(path_of(key), fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  keep("a");
  keep("b");
  age("a", 3);
  age("b", 2);
  EXPECT_TRUE(holds_them("a"));  // used now
  keep("c");
  EXPECT_TRUE(holds_them("a"));
  EXPECT_FALSE(holds_them("b"));
  EXPECT_TRUE(holds_them("c"));
  EXPECT_TRUE(fs::exists(options_.directory + "/notes.weights"));
  options_.most_bytes = one - 1;
  keep("d");
  EXPECT_FALSE(holds_them("d"));
  EXPECT_TRUE(holds_them("c")) << "nothing is removed for what will not fit";
}

TEST_F(WeightCache, AWriterThatIsToldToStopLeavesNothing) {
  const std::atomic<bool> stop{true};
  keep_weights(options_, kKey, weights_, stop);
  EXPECT_EQ(names().size(), 0u);
}

TEST_F(WeightCache, AFolderThatCannotBeMadeIsNoError) {
  std::ofstream(folder_ + "/file") << "x";
  options_.directory = folder_ + "/file/weights";
  keep();
  EXPECT_EQ(find(), nullptr);
}

/// Runs in a child process, which must end by itself.
void in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
}

TEST_F(WeightCache, AFileThatCannotBeWrittenToItsEndIsNotKept) {
  in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kPayloadAlign + kCacheChunk, kPayloadAlign + kCacheChunk};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    keep();
  });
  EXPECT_EQ(names().size(), 0u);
  keep();
  EXPECT_TRUE(holds_them());
}

TEST_F(WeightCache, AKilledWriterLeavesNothingThatIsUsed) {
  weights_.resize(24 << 20);
  for (int round = 0; round < 8; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      while (true) {
        keep();
        ::unlink(path_of().c_str());
      }
    }
    while (names().empty()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const bool found = find() != nullptr;
    EXPECT_EQ(found, holds_them()) << round;
    fs::remove(path_of());
  }
  keep();
  EXPECT_TRUE(holds_them());
  EXPECT_EQ(names().size(), 1u) << "what killed writers left is gone";
}

TEST_F(WeightCache, WhatWritersOfOtherWeightsLeftIsRemovedUnlessTheyStillWrite) {
  fs::create_directories(options_.directory);
  const std::string dead = path_of("dead") + ".part", alive = path_of("alive") + ".part";
  std::ofstream{dead} << "half";
  std::ofstream{alive} << "half";
  const int held = ::open(alive.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  keep();
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  keep("alive");  // somebody else is at it
  EXPECT_EQ(fs::file_size(alive), 4u);
  EXPECT_FALSE(fs::exists(path_of("alive")));
  ::close(held);
  keep("alive");
  EXPECT_TRUE(holds_them("alive"));
}

TEST_F(WeightCache, TwoProcessesMayWriteAtOnce) {
  weights_.resize(24 << 20);
  for (int round = 0; round < 4; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        keep();
        ::_exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(holds_them());
    EXPECT_EQ(names().size(), 1u);
    fs::remove(path_of());
  }
}

/// The name under which loading began; "" when there was nothing to do.
class Label final : public Progress {
 public:
  void begin(std::string_view what, uint64_t) override { text = what; }
  void advance(uint64_t) override {}
  void end() override {}
  std::string text;
};

/// A start of a model with the cache: how its weights came, and what it computes.
class WeightCacheStart : public WeightCache {
 protected:
  struct Started {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Executable> executable;
    std::string label;
    std::vector<std::vector<float>> logits;
  };
  Started start(Residence residence, const std::string& isa = "", const RandomModel& model = {}) {
    Started out;
    if (!isa.empty()) setenv("GRISTMILL_ISA", isa.c_str(), 1);
    out.backend = make_cpu_backend(2, ActivationMode::int8);
    unsetenv("GRISTMILL_ISA");
    options_.residence = residence;
    out.executable = out.backend->compile(random_program(model), {64, 1, 64, 128}, {DType::bf16, 16}, options_);
    Label label;
    out.executable->bind({16, &label});
    out.label = label.text;
    Feeder feeder(*out.executable, model.vocabulary, 16, 16);
    try {
      out.logits = feeder.run({{random_ids(40, model.vocabulary, 3), 0, 0}}).logits;
    } catch (const StepError&) {
      out.logits.clear();
    }
    return out;
  }
  /// Waits for the background to have kept `count` files.
  void wait_for_files(size_t count) {
    const auto finished = [&] {
      const std::vector<std::string> all = names();
      return all.size() == count &&
             std::all_of(all.begin(), all.end(), [](auto& n) { return n.ends_with(".weights"); });
    };
    for (int i = 0; i < 6000 && !finished(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(finished());
  }
  /// The label of a start that lives until the background has kept its weights, as file number `count`.
  std::string label_of_kept(size_t count, const RandomModel& model = {}) {
    const Started started = start(Residence::owned, "", model);
    wait_for_files(count);
    return started.label;
  }
  std::string only_file() const { return options_.directory + "/" + names().at(0); }
};

TEST_F(WeightCacheStart, CachedWeightsComputeTheSameBitsAsPackedOnes) {
  size_t files = 0;
  for (const Kernels* set : usable_kernels()) {
    const Started packed = start(Residence::automatic, set->name);
    EXPECT_EQ(packed.label, "packing weights") << set->name << " must not take another set's file";
    EXPECT_FALSE(packed.executable->memory().weights_mapped);
    wait_for_files(++files);
    const Started copied = start(Residence::owned, set->name);
    EXPECT_EQ(copied.label, "reading packed weights");
    EXPECT_FALSE(copied.executable->memory().weights_mapped);
    EXPECT_EQ(copied.logits, packed.logits);
    const Started mapped = start(Residence::mapped, set->name);
    EXPECT_EQ(mapped.label, "");
    EXPECT_TRUE(mapped.executable->memory().weights_mapped);
    EXPECT_EQ(mapped.executable->memory().weights, packed.executable->memory().weights);
    EXPECT_EQ(mapped.logits, packed.logits);
    EXPECT_EQ(mapped.executable->fault(), "");
  }
}

TEST_F(WeightCacheStart, SmallWeightsAreCopiedUnlessAsked) {
  label_of_kept(1);
  EXPECT_EQ(start(Residence::automatic).label, "reading packed weights");
}

TEST_F(WeightCacheStart, AnotherModelOrIdentityIsPackedAnew) {
  EXPECT_EQ(label_of_kept(1), "packing weights");
  options_.identity = "a model that was written later\n";
  EXPECT_EQ(label_of_kept(2), "packing weights");
  RandomModel deeper;
  deeper.layers = 3;
  EXPECT_EQ(label_of_kept(3, deeper), "packing weights");
  options_.identity.clear();
  EXPECT_EQ(start(Residence::owned).label, "packing weights") << "of unknown origin";
  options_.identity = "a model\n";
  options_.least_bytes = 1 << 30;
  EXPECT_EQ(start(Residence::owned).label, "packing weights") << "too small";
  options_.least_bytes = 0;
  EXPECT_EQ(start(Residence::owned).label, "reading packed weights");
}

TEST_F(WeightCacheStart, DamageFoundWhileCopyingIsPackedAnewAtOnce) {
  const Started packed = start(Residence::owned);
  wait_for_files(1);
  const size_t size = fs::file_size(only_file());
  const std::byte last = read_at(only_file(), size - 100, 1)[0] ^ std::byte{1};
  write_at(only_file(), size - 100, &last, 1);
  EXPECT_EQ(start(Residence::owned).logits, packed.logits);
  label_of_kept(1);
  const Started again = start(Residence::owned);
  EXPECT_EQ(again.label, "reading packed weights");
  EXPECT_EQ(again.logits, packed.logits);
}

TEST_F(WeightCacheStart, DamageFoundInPlaceEndsAllStepsAndRemovesTheFile) {
  const Started packed = start(Residence::owned);
  wait_for_files(1);
  const size_t size = fs::file_size(only_file());
  const std::byte last = read_at(only_file(), size - 100, 1)[0] ^ std::byte{1};
  write_at(only_file(), size - 100, &last, 1);
  {
    const Started mapped = start(Residence::mapped);
    for (int i = 0; i < 6000 && mapped.executable->fault().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_NE(mapped.executable->fault().find("damaged"), std::string::npos);
    EXPECT_EQ(names().size(), 0u);
    Feeder feeder(*mapped.executable, RandomModel{}.vocabulary, 16, 16);
    EXPECT_THROW(feeder.run({{{1}, 0, 0}}), StepError);
  }
  EXPECT_EQ(start(Residence::mapped).logits, packed.logits);
}

/// Values that follow from their place alone, the same on every machine.
class PatternWeight final : public WeightSource {
 public:
  PatternWeight(int64_t rows, int64_t columns, Encoding encoding)
      : WeightSource("pattern", rows, columns, encoding, 1) {}
  void read_f32(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = first * columns(); i < (first + count) * columns(); ++i)
      *out++ = static_cast<float>(pattern(i) % 1000) / 8;
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    for (int64_t i = first * columns(); i < (first + count) * columns(); ++i)
      *out++ = static_cast<uint16_t>(pattern(i));
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    const bool nibbles = encoding().cls == ComputeClass::i4_group;
    for (int64_t i = 0; i < count * columns(); ++i) {
      const int64_t code = pattern(first * columns() + i);
      out.codes[i] = static_cast<uint8_t>(nibbles                                      ? code % 16
                                          : encoding().cls == ComputeClass::i4_channel ? code % 16 - 8
                                                                                       : code % 256 - 128);
    }
    const int64_t scales = scales_of_row(encoding(), columns());
    for (int64_t i = 0; i < count * scales; ++i) {
      const int64_t value = pattern(first * scales + i + 77);
      if (out.scales != nullptr) out.scales[i] = static_cast<uint16_t>(value);
      if (out.mins != nullptr) out.mins[i] = static_cast<uint16_t>(value + 5);
      if (out.channel_scales != nullptr) out.channel_scales[i] = static_cast<float>(value % 999) / 4;
    }
    for (int64_t i = 0; out.addends != nullptr && i < count; ++i) out.addends[i] = static_cast<int32_t>(first + i);
  }

 private:
  static int64_t pattern(int64_t i) { return (i * 7919 + i / 13 * 104729) % 30011; }
};

TEST(PackingVersion, StandsForTheseBytes) {
  // When this fails because packing has changed: raise kPackingVersion, so that weights kept by earlier builds are not
  // read, and put the new sum here.
  uint64_t sum = 0;
  for (const Encoding& encoding :
       {kF32, kF16, kBf16, kQ40, kQ41, kQ80, kQ81, kW8A8, kW8A8Static, kW8A16, kFp8, kFp8Group, kW4A8, kW4A8Group}) {
    const PatternWeight source(45, 96, encoding);
    for (const int panel : {8, 16, 32}) {
      for (const bool biased : {false, true}) {
        Kernels kernels = portable_kernels();
        kernels.coded_panel = panel;
        kernels.biased_i8 = biased;
        kernels.complements_i8 = !biased;
        const PackedWeight form = packed_form(source, kernels, false);
        std::vector<std::byte> packed(form.bytes());
        pack_panels(source, form, 0, form.panels(), packed.data());
        sum = checksum(packed, sum);
      }
    }
  }
  EXPECT_EQ(kPackingVersion, 2);
  EXPECT_EQ(sum, 10205939818035689338ULL);
}

}  // namespace
}  // namespace gristmill::device::cpu
