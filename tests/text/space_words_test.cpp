#include "text/space_words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gristmill::text {
namespace {

const std::string kSpace(sentencepiece_space);

/// With _ for the space.
std::string spelled(std::string text) {
  for (size_t at = text.find('_'); at != std::string::npos; at = text.find('_', at)) text.replace(at, 1, kSpace);
  return text;
}
std::vector<std::string> split(const SpaceWords& words, const std::string& text) {
  std::vector<std::string> all;
  words.split(spelled(text), [&](std::string_view word) {
    std::string plain(word);
    for (size_t at = plain.find(kSpace); at != std::string::npos; at = plain.find(kSpace)) plain.replace(at, 3, "_");
    all.push_back(plain);
  });
  return all;
}
using Words = std::vector<std::string>;

TEST(SpaceWords, RunsOfSpacesBeginWords) {
  const SpaceWords words;
  EXPECT_EQ(split(words, ""), Words{});
  EXPECT_EQ(split(words, "one"), (Words{"one"}));
  EXPECT_EQ(split(words, "_one_two"), (Words{"_one", "_two"}));
  EXPECT_EQ(split(words, "one___two_"), (Words{"one", "___two", "_"}));
  EXPECT_EQ(split(words, "___"), (Words{"___"}));
}

TEST(SpaceWords, NoCutWhereATokenHasTheSpaceBehindTheSameByte) {
  SpaceWords words;
  words.add_token(spelled("___x"));  // spaces at the beginning join nothing
  words.add_token(spelled(">_</"));
  EXPECT_EQ(split(words, "<a>_<b_c>__d"), (Words{"<a>_<b", "_c>__d"}));
}

}  // namespace
}  // namespace gristmill::text
