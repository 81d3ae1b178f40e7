// How fast tokenizers encode: megabytes of text per second of one thread's CPU time.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "clock.h"
#include "text/text_model.h"
#include "text/utf8.h"

namespace gristmill::bench {
namespace {

struct Text {
  std::string name, bytes;
};

Text read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Text text{path.substr(path.rfind('/') + 1), std::string((std::istreambuf_iterator<char>(in)), {})};
  if (!in) throw Error(cat(path, ": cannot be read"));
  if (text::find_invalid_utf8(text.bytes) != std::string::npos) throw Error(cat(path, ": is not valid UTF-8"));
  return text;
}

/// The best of some passes over the text, each at least a tenth of a second long.
double megabytes_per_second(const text::Tokenizer& tokenizer, const std::string& bytes, size_t* tokens) {
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const double start = thread_seconds();
    double seconds = 0;
    int rounds = 0;
    do {
      *tokens = tokenizer.encode(bytes, false, true).size();
      ++rounds;
      seconds = thread_seconds() - start;
    } while (seconds < 0.1);
    best = std::max(best, rounds * static_cast<double>(bytes.size()) / seconds / 1e6);
  }
  return best;
}

int run(const std::vector<std::string>& words) {
  std::vector<std::string> models;
  std::vector<Text> texts;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--text") {
      if (++i == words.size()) throw Error("--text: needs the path of a text");
      texts.push_back(read(words[i]));
    } else {
      models.push_back(words[i]);
    }
  }
  if (models.empty() || texts.empty()) throw Error("needs the paths of models and, behind --text each, of texts");
  for (const std::string& path : models) {
    const double start = thread_seconds();
    const text::TextModel model = text::load_text_model(path);
    std::printf("%s: %d tokens, read in %.2f s\n", path.c_str(), model.tokenizer->vocabulary(),
                thread_seconds() - start);
    for (const Text& text : texts) {
      size_t tokens = 0;
      const double speed = megabytes_per_second(*model.tokenizer, text.bytes, &tokens);
      std::printf("  %-24s %8.2f MB  %5.2f bytes per token  %7.1f MB/s\n", text.name.c_str(),
                  static_cast<double>(text.bytes.size()) / 1e6,
                  static_cast<double>(text.bytes.size()) / static_cast<double>(std::max<size_t>(tokens, 1)), speed);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gristmill::bench

int main(int argc, char** argv) {
  try {
    return gristmill::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
