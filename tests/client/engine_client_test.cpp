#include "client/engine_client.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace gristmill {
namespace {

using namespace std::chrono_literals;

engine::EngineConfig tiny_config() {
  engine::EngineConfig config;
  config.model = GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf";
  config.threads = 1;
  config.max_num_seqs = 16;
  config.cache_bytes = 16 << 20;
  return config;
}

/// What one request got, for a test that waits for it.
class Received {
 public:
  EngineClient::OutputHandler handler() {
    return [this](engine::EngineOutput&& output) {
      const std::lock_guard lock(mutex_);
      for (const auto& token : output.tokens) tokens_[output.index].push_back(token.token);
      if (output.finish != engine::FinishReason::none) ends_[output.index] = output;
      changed_.notify_all();
    };
  }
  bool wait_end(size_t choices, std::chrono::seconds limit = 30s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return ends_.size() == choices; });
  }
  bool wait_tokens(size_t count, std::chrono::seconds limit = 30s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return tokens_[0].size() >= count; });
  }
  std::vector<int32_t> tokens(int32_t index = 0) {
    const std::lock_guard lock(mutex_);
    return tokens_[index];
  }
  engine::EngineOutput end(int32_t index = 0) {
    const std::lock_guard lock(mutex_);
    return ends_[index];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, std::vector<int32_t>> tokens_;
  std::map<int32_t, engine::EngineOutput> ends_;
};

engine::EngineRequest request(EngineClient& client, int32_t max_tokens, int32_t n = 1) {
  engine::EngineRequest made;
  made.id = client.next_id();
  made.prompt = {5, 6, 7, 8};
  made.n = n;
  made.sampling.temperature = 0;
  made.sampling.ignore_eos = true;
  made.sampling.max_tokens = max_tokens;
  return made;
}

std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  DIR* folder = ::opendir("/proc/self/task");
  while (const dirent* task = ::readdir(folder)) {
    std::ifstream file(std::string("/proc/self/task/") + task->d_name + "/children");
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  }
  ::closedir(folder);
  return pids;
}

bool becomes(const EngineClient& client, EngineHealth wanted, std::chrono::seconds limit) {
  for (const auto until = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < until;) {
    if (client.health() == wanted) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

class EngineClientTest : public testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<EngineClient> make(const engine::EngineConfig& config) {
    return GetParam() ? make_process_client(config, "/proc/self/exe") : make_in_process_client(config);
  }
};

TEST_P(EngineClientTest, AnswersARequest) {
  const auto client = make(tiny_config());
  const engine::EngineInfo info = client->wait_ready(30);
  EXPECT_GT(info.vocabulary, 0);
  EXPECT_EQ(client->health(), EngineHealth::ready);
  Received got;
  client->submit(request(*client, 12, 2), got.handler());
  ASSERT_TRUE(got.wait_end(2));
  EXPECT_EQ(got.tokens(0).size(), 12u);
  EXPECT_EQ(got.tokens(0), got.tokens(1));
  EXPECT_EQ(got.end().finish, engine::FinishReason::length);
  EXPECT_EQ(got.end().prompt_tokens, 4);
}

TEST_P(EngineClientTest, AnAbortEndsTheStream) {
  const auto client = make(tiny_config());
  client->wait_ready(30);
  Received got;
  const engine::EngineRequest endless = request(*client, 1 << 20);
  client->submit(endless, got.handler());
  ASSERT_TRUE(got.wait_tokens(3));
  client->abort(endless.id);
  ASSERT_TRUE(got.wait_end(1));
  EXPECT_EQ(got.end().finish, engine::FinishReason::abort);
}

TEST_P(EngineClientTest, AModelThatCannotBeLoadedSaysWhy) {
  engine::EngineConfig config = tiny_config();
  config.model = "/nonexistent/model.gguf";
  const auto client = make(config);
  try {
    client->wait_ready(30);
    FAIL() << "ready without a model";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/model.gguf"), std::string::npos) << error.what();
  }
  EXPECT_EQ(client->health(), EngineHealth::dead);
  Received got;
  client->submit(request(*client, 3), got.handler());
  ASSERT_TRUE(got.wait_end(1));
  EXPECT_EQ(got.end().finish, engine::FinishReason::error);
}

TEST_P(EngineClientTest, ThePrefixCacheCanBeDropped) {
  const auto client = make(tiny_config());
  client->wait_ready(30);
  for (int round = 0; round < 2; ++round) {
    Received first, second;
    engine::EngineRequest long_prompt = request(*client, 2);
    long_prompt.prompt.assign(40, 9);
    client->submit(long_prompt, first.handler());
    ASSERT_TRUE(first.wait_end(1));
    EXPECT_EQ(first.end().cached_tokens, 0) << round;
    long_prompt.id = client->next_id();
    client->submit(long_prompt, second.handler());
    ASSERT_TRUE(second.wait_end(1));
    EXPECT_EQ(second.end().cached_tokens, 32);
    EXPECT_TRUE(client->reset_prefix_cache());
  }
}

INSTANTIATE_TEST_SUITE_P(Clients, EngineClientTest, testing::Values(false, true),
                         [](const auto& tested) { return tested.param ? "OtherProcess" : "InProcess"; });

TEST(ProcessClient, ACrashedEngineIsRestartedAndStreamsGetAnError) {
  const auto client = make_process_client(tiny_config(), "/proc/self/exe");
  client->wait_ready(30);
  Received before;
  client->submit(request(*client, 1 << 20), before.handler());
  ASSERT_TRUE(before.wait_tokens(2));
  const auto pids = children();
  ASSERT_EQ(pids.size(), 1u);
  ASSERT_EQ(::kill(pids[0], SIGSEGV), 0);
  ASSERT_TRUE(before.wait_end(1, 10s));
  EXPECT_EQ(before.end().finish, engine::FinishReason::error);
  // Built with a sanitizer, the engine catches the signal, reports and exits.
  const std::string error = before.end().error;
  EXPECT_TRUE(error.find("signal 11") != std::string::npos || error.find("exited with status") != std::string::npos)
      << error;
  ASSERT_TRUE(becomes(*client, EngineHealth::ready, 20s));
  Received after;
  client->submit(request(*client, 5), after.handler());
  ASSERT_TRUE(after.wait_end(1));
  EXPECT_EQ(after.end().finish, engine::FinishReason::length);
}

TEST(ProcessClient, AnEngineThatIsGoneForGoodIsTheSubjectOfTheError) {
  const auto client = make_process_client(tiny_config(), "/bin/false");
  std::string error;
  try {
    client->wait_ready(30);
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  EXPECT_EQ(client->health(), EngineHealth::dead);
  EXPECT_EQ(error, "the engine process exited with status 1");
  EXPECT_EQ(client->health_detail(), error);
}

TEST(ProcessClient, AStoppedEngineIsNoticedWithinTenSeconds) {
  const auto client = make_process_client(tiny_config(), "/proc/self/exe");
  client->wait_ready(30);
  Received before;
  client->submit(request(*client, 1 << 20), before.handler());
  ASSERT_TRUE(before.wait_tokens(2));
  ASSERT_EQ(::kill(children().at(0), SIGSTOP), 0);
  ASSERT_TRUE(before.wait_end(1, 10s));
  EXPECT_EQ(before.end().finish, engine::FinishReason::error);
  ASSERT_TRUE(becomes(*client, EngineHealth::ready, 20s));
}

TEST(ProcessClient, KillingTheFrontTakesTheEngineWithIt) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t front = ::fork();
  if (front == 0) {
    const auto client = make_process_client(tiny_config(), "/proc/self/exe");
    client->wait_ready(30);
    const pid_t engine = children().at(0);
    [[maybe_unused]] const ssize_t wrote = ::write(pipe[1], &engine, sizeof engine);
    ::pause();
    ::_exit(0);
  }
  pid_t engine = 0;
  ASSERT_EQ(::read(pipe[0], &engine, sizeof engine), static_cast<ssize_t>(sizeof engine));
  ::kill(front, SIGKILL);
  ::waitpid(front, nullptr, 0);
  bool gone = false;
  for (int i = 0; i < 400 && !gone; ++i) {
    // The orphan may linger as a zombie until its new parent reaps it.
    std::ifstream stat("/proc/" + std::to_string(engine) + "/stat");
    std::string text;
    gone =
        !std::getline(stat, text) || text.find(") Z ") != std::string::npos || text.find(") X ") != std::string::npos;
    if (!gone) std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(gone);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(ProcessClient, TakesNoMemoryBeforeItIsPermitted) {
  const auto client = make_process_client(tiny_config(), "/proc/self/exe", /*waits=*/true);
  EXPECT_FALSE(becomes(*client, EngineHealth::ready, 1s));
  EXPECT_EQ(client->health(), EngineHealth::starting);
  client->permit_loading();
  EXPECT_TRUE(becomes(*client, EngineHealth::ready, 30s));
  // One that comes after it does not wait again.
  for (const pid_t pid : children()) ::kill(pid, SIGKILL);
  EXPECT_TRUE(becomes(*client, EngineHealth::starting, 10s));
  EXPECT_TRUE(becomes(*client, EngineHealth::ready, 30s));
}

TEST(ProcessClient, AFaultOfTheModelNeedsNoPermission) {
  engine::EngineConfig config = tiny_config();
  config.model = GRISTMILL_TEST_DIR "/golden/hf";
  const auto client = make_process_client(config, "/proc/self/exe", /*waits=*/true);
  EXPECT_TRUE(becomes(*client, EngineHealth::dead, 30s));
  EXPECT_NE(client->health_detail().find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace gristmill
