#include "cli/arguments.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "config/known_flags.h"
#include "config/suggest.h"

namespace gristmill::cli {
namespace {

using config::KnownFlag;

/// One flag as written: its name, and the value behind "=" if there is one.
struct Written {
  std::string name;
  std::string value;
  bool has_value = false;
  bool dotted = false;
};

bool is_flag(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  if (word.starts_with("--")) return word.size() > 2;
  return !config::long_name(word.substr(0, word.find('='))).empty() || word == "-h" || word.starts_with("-O");
}

Written read(const std::string& word) {
  Written out;
  const size_t end = word.find('=');
  out.name = word.substr(0, end);
  if (end != std::string::npos) {
    out.value = word.substr(end + 1);
    out.has_value = true;
  }
  if (!out.name.starts_with("--")) {
    if (out.name.starts_with("-O") && out.name.size() == 3) out.name = "-O";  // -O2
    const std::string_view longer = config::long_name(out.name);
    if (!longer.empty()) out.name = longer;
    return out;
  }
  const size_t dot = out.name.find('.');
  if (dot != std::string::npos) {
    out.name.resize(dot);
    out.dotted = true;
  }
  std::replace(out.name.begin(), out.name.end(), '_', '-');
  return out;
}

bool is_true(const std::string& value) {
  return value == "true" || value == "True" || value == "1";
}
bool is_false(const std::string& value) {
  return value == "false" || value == "False" || value == "0";
}

bool has_word(const std::string& list, const std::string& word) {
  for (size_t at = list.find(word); at != std::string::npos; at = list.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return !word.empty();
  }
  return false;
}

class Reader {
 public:
  Reader(const std::vector<std::string>& words, const std::vector<FlagSpec>& specs) : words_(words) {
    for (const FlagSpec& spec : specs) {
      specs_[spec.name] = &spec;
      names_.push_back(spec.name);
      if (spec.boolean) names_.push_back("--no-" + spec.name.substr(2));
    }
    for (const KnownFlag& flag : config::known_flags()) names_.push_back(flag.name);
  }

  Arguments run() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == "-h" || word == "--help" || word.starts_with("--help=")) {
        out_.words.push_back("--help");
      } else if (!is_flag(word)) {
        out_.words.push_back(word);
      } else {
        flag(read(word), word);
      }
    }
    return std::move(out_);
  }

 private:
  void flag(Written written, const std::string& word) {
    complete(written, word);
    const bool negated = written.name.starts_with("--no-") && !specs_.contains(written.name);
    const std::string positive = negated ? "--" + written.name.substr(5) : written.name;
    if (const auto spec = specs_.find(positive); spec != specs_.end() && (!negated || spec->second->boolean)) {
      if (!seen_.insert(positive).second) forget(positive);
      supported(*spec->second, written, negated);
      return;
    }
    const KnownFlag* known = config::find_known_flag(positive);
    if (!known) known = config::find_known_flag(written.name);
    if (known) {
      unsupported(*known, written, negated);
      return;
    }
    const std::string nearest = config::closest(written.name, names_);
    throw Error(cat("unrecognized arguments: ", word, nearest.empty() ? "" : cat(" (did you mean ", nearest, "?)")));
  }

  /// Python's argument parser takes any unambiguous beginning of a name.
  void complete(Written& written, const std::string& word) {
    if (!written.name.starts_with("--") || std::find(names_.begin(), names_.end(), written.name) != names_.end())
      return;
    if (written.name.starts_with("--no-") && config::find_known_flag("--" + written.name.substr(5))) return;
    std::set<std::string> matches;
    for (const std::string& name : names_) {
      if (name.starts_with(written.name)) matches.insert(name);
    }
    if (matches.size() == 1) {
      out_.notes.push_back(cat("argument ", written.name, ": taken as ", *matches.begin()));
      written.name = *matches.begin();
    } else if (matches.size() > 1 && written.name.size() > 4) {
      std::string list;
      for (const std::string& name : matches) list += (list.empty() ? "" : ", ") + name;
      throw Error(cat("ambiguous option: ", word, " could match ", list));
    }
  }

  /// A flag given again takes the place of what it was given before.
  void forget(const std::string& name) {
    out_.notes.push_back(cat("found duplicate keys ", name, ": the last one counts"));
    std::erase_if(out_.words, [&](const std::string& word) {
      return word == name || word.starts_with(name + "=") || word == "--no-" + name.substr(2);
    });
  }

  void supported(const FlagSpec& spec, const Written& written, bool negated) {
    if (written.dotted) throw Error(cat("argument ", spec.name, ": has no keys to set with a dot"));
    if (spec.boolean) {
      bool on = !negated;
      if (written.has_value) {
        if (!is_true(written.value) && !is_false(written.value)) {
          throw Error(cat("argument ", spec.name, ": must be true or false, got '", written.value, "'"));
        }
        on = is_true(written.value) != negated;
      }
      out_.words.push_back(on ? spec.name : "--no-" + spec.name.substr(2));
      return;
    }
    std::vector<std::string> values;
    if (written.has_value) {
      values.push_back(written.value);
    } else if (at_ < words_.size() && !is_flag(words_[at_])) {
      values.push_back(words_[at_++]);
      while (spec.list && at_ < words_.size() && !is_flag(words_[at_])) values.push_back(words_[at_++]);
    } else {
      throw Error(cat("argument ", spec.name, ": expected ", spec.list ? "at least one argument" : "one argument"));
    }
    if (values.size() == 1 && (values[0].empty() || values[0] == "None")) return;
    for (const std::string& value : values) out_.words.push_back(cat(spec.name, "=", value));
  }

  void unsupported(const KnownFlag& known, const Written& written, bool negated) {
    std::string value = written.value;
    if (known.takes_value && !written.has_value) {
      // -O2 carries its value; everything else has it in the next word.
      if (at_ < words_.size() && !is_flag(words_[at_])) value = words_[at_++];
    }
    const bool off = negated || (!known.takes_value && written.has_value && is_false(value));
    if (off) {
      out_.notes.push_back(cat("flag --no-", known.name + 2, ": accepted, no effect (", known.why, ")"));
      return;
    }
    if (value == "None" || (known.takes_value && value.empty() && written.has_value)) return;
    const std::string allowed = known.allowed ? known.allowed : "";
    if (allowed == "*") {
      out_.notes.push_back(cat("flag ", known.name, ": accepted, no effect (", known.why, ")"));
      return;
    }
    if (has_word(allowed, value)) return;
    throw Error(cat("argument ", known.name, value.empty() ? "" : " ", value, ": not supported yet",
                    std::string(known.why) == "not supported yet" ? "" : cat(" (", known.why, ")")));
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;
  std::map<std::string, const FlagSpec*> specs_;
  std::vector<std::string> names_;
  std::set<std::string> seen_;
  Arguments out_;
};

}  // namespace

Arguments normalize(const std::vector<std::string>& words, const std::vector<FlagSpec>& specs) {
  return Reader(words, specs).run();
}

}  // namespace gristmill::cli
