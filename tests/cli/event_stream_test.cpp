#include "cli/event_stream.h"

#include <gtest/gtest.h>

namespace gristmill::cli {
namespace {

using Events = std::vector<std::string>;

Events all(std::string_view text, size_t piece) {
  EventStream stream;
  Events events;
  for (size_t at = 0; at < text.size(); at += piece) {
    for (std::string& event : stream.push(text.substr(at, piece))) events.push_back(std::move(event));
  }
  return events;
}

TEST(EventStream, ReadsDataWhateverTheLineEndsAndPieces) {
  const std::string text =
      "data: {\"a\":1}\n\n: a comment\ndata:no space\r\n\r\nevent: x\ndata: two\ndata: lines\n\ndata\n\nid: 7\n\n"
      "database: no\n\ndata:  x\r\rdata: unfinished\n";
  const Events expected = {"{\"a\":1}", "no space", "two\nlines", "", " x"};
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, text.size()}) {
    EXPECT_EQ(all(text, piece), expected) << piece;
  }
}

}  // namespace
}  // namespace gristmill::cli
