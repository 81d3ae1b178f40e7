#include "server/http/listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace gristmill::server {
namespace {

std::string failure_of(const ListenAddress& address) {
  try {
    const Listener listener(address);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Listener, TakenPortIsNamedWithItsOwner) {
  const Listener first({"127.0.0.1", 0, ""});
  const std::string message = failure_of({"127.0.0.1", first.port(), ""});
  EXPECT_NE(message.find("port " + std::to_string(first.port()) + " is already in use"), std::string::npos) << message;
  EXPECT_NE(message.find("process " + std::to_string(::getpid())), std::string::npos) << message;
}

TEST(Listener, AllInterfacesConflictWithOne) {
  const Listener first({"", 0, ""});
  EXPECT_NE(first.port(), 0);
  EXPECT_NE(failure_of({"", first.port(), ""}).find("already in use"), std::string::npos);
  EXPECT_EQ(first.url(), "http://0.0.0.0:" + std::to_string(first.port()));
}

TEST(Listener, UnknownHostIsNamed) {
  EXPECT_NE(failure_of({"no.such.host.invalid", 0, ""}).find("--host no.such.host.invalid"), std::string::npos);
}

TEST(Listener, AddressOfAnotherMachineIsRefused) {
  EXPECT_NE(failure_of({"203.0.113.7", 0, ""}).find("203.0.113.7"), std::string::npos);
}

class UnixListener : public testing::Test {
 protected:
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("gristmill-test-" + std::to_string(::getpid()))).string();
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(UnixListener, SocketFileGoesWithTheListener) {
  {
    const Listener listener({"", 0, path_});
    EXPECT_TRUE(std::filesystem::exists(path_));
    EXPECT_NE(failure_of({"", 0, path_}).find("another server"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixListener, LeftOverSocketIsReplacedButOtherFilesAreNot) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  EXPECT_EQ(failure_of({"", 0, path_}), "");
  std::ofstream(path_) << "a file";
  EXPECT_NE(failure_of({"", 0, path_}).find("no socket"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixListener, TooLongPathIsRefused) {
  EXPECT_NE(failure_of({"", 0, "/tmp/" + std::string(200, 'x')}).find("longer than"), std::string::npos);
}

}  // namespace
}  // namespace gristmill::server
