#include "cli/zip_archive.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "cli/zip_fixture.h"

namespace gristmill::cli {
namespace {

class ZipArchiveTest : public ::testing::Test {
 protected:
  ZipArchiveTest() {
    char name[] = "/tmp/gristmill_zip_XXXXXX";
    close(mkstemp(name));
    path = name;
    for (int i = 0; i < 40000; ++i) large += "line " + std::to_string(i * 7919 % 1000) + "\n";
  }
  ~ZipArchiveTest() override { std::remove(path.c_str()); }
  std::string extracted(const std::string& bytes, const std::string& member) const {
    write_file(path, bytes);
    std::string out;
    const ZipArchive archive(path);
    archive.extract(member,
                    [&](const uint8_t* data, size_t size) { out.append(reinterpret_cast<const char*>(data), size); });
    return out;
  }
  std::string failure(const std::string& bytes, const std::string& member) const {
    try {
      extracted(bytes, member);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  std::string path, large;
};

TEST_F(ZipArchiveTest, ReadsStoredAndDeflatedMembers) {
  ZipFixture zip;
  zip.add("a/first.txt", "first", false);
  zip.add("a/large.txt", large, true);
  zip.add("empty", "", false);
  zip.add("empty.deflated", "", true);
  EXPECT_EQ(extracted(zip.bytes(), "a/first.txt"), "first");
  EXPECT_EQ(extracted(zip.bytes("a comment"), "a/large.txt"), large);
  EXPECT_EQ(extracted(zip.bytes(), "empty"), "");
  EXPECT_EQ(extracted(zip.bytes(), "empty.deflated"), "");
}

TEST_F(ZipArchiveTest, SaysWhatIsMissing) {
  ZipFixture zip;
  zip.add("there", "x", false);
  EXPECT_NE(failure(zip.bytes(), "elsewhere").find("holds no elsewhere"), std::string::npos);
  EXPECT_NE(failure("", "x").find("not a ZIP archive"), std::string::npos);
  EXPECT_NE(failure(std::string(100000, 'x'), "x").find("not a ZIP archive"), std::string::npos);
  EXPECT_THROW(ZipArchive("/nonexistent/archive.zip"), Error);
}

// Whatever byte is changed or cut off: the contents come out right, or there is an Error.
TEST_F(ZipArchiveTest, DamageNeverGoesUnnoticed) {
  ZipFixture zip;
  const std::string contents = "some text that is long enough to be packed, packed, packed, packed";
  zip.add("member", contents, true);
  zip.add("other", "stored", false);
  const std::string good = zip.bytes();
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    try {
      EXPECT_EQ(extracted(bad, "member"), contents) << "byte " << at;
    } catch (const Error&) {
      ++refused;
    }
    EXPECT_THROW(extracted(good.substr(0, at), "member"), Error) << "cut at " << at;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace gristmill::cli
