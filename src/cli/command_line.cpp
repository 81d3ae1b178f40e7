#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"

namespace gristmill::cli {
namespace {

/// CLI11 prints how a switch is declared; this, how it is written.
class SwitchFormatter : public CLI::Formatter {
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string& text = option->get_option_text();
    return text.empty() ? Formatter::make_option_name(option, positional) : text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty() || option->get_type_name().empty()) return "";
    const bool list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return cat(' ', option->get_type_name(), list ? " ..." : "");
  }
};

/// A name as model repositories have them: owner/name, without a file's ending.
bool looks_like_repository(const std::string& path) {
  if (std::count(path.begin(), path.end(), '/') != 1 || path.front() == '.' || path.ends_with(".gguf")) return false;
  return path.front() != '/' && path.back() != '/';
}

}  // namespace

void set_help_format(CLI::App& command) {
  command.formatter(std::make_shared<SwitchFormatter>());
}

std::optional<int> parse_words(CLI::App& command, const std::vector<std::string>& words) {
  set_help_format(command);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
    command.parse(reversed);
    return std::nullopt;
  } catch (const CLI::CallForHelp& help) {
    return command.exit(help);
  } catch (const CLI::ExtrasError&) {
    std::string extras;
    for (const std::string& word : command.remaining(true)) extras += cat(extras.empty() ? "" : " ", word);
    return usage_error(command.get_name(), cat("unrecognized arguments: ", extras));
  } catch (const CLI::ParseError& error) {
    return usage_error(command.get_name(), error.what());
  }
}

int usage_error(const std::string& command, const std::string& why) {
  std::fputs(cat(command, ": error: ", why, "\nSee ", command, " --help\n").c_str(), stderr);
  return 2;
}

void check_model_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (looks_like_repository(path)) {
      throw Error(cat(path,
                      ": no such file or folder here, and models are not downloaded from a hub: give the path of a ",
                      "GGUF file or of a downloaded model folder"));
    }
    throw Error(cat(path, ": no such file or folder; a model is a GGUF file or a Hugging Face folder"));
  }
  if (!fs::is_directory(path, error) || fs::exists(fs::path(path) / "config.json", error)) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".gguf") {
      throw Error(cat(path, ": a folder without config.json; to serve ", entry.path().filename().string(),
                      " in it, give that file's path"));
    }
  }
  throw Error(cat(path, ": a folder without config.json, which is no model"));
}

}  // namespace gristmill::cli
