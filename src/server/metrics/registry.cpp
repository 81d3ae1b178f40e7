#include "server/metrics/registry.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

namespace gristmill::server {
namespace {

std::string join_labels(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) {
    if (!out.empty()) out += ',';
    out += name + "=\"";
    for (const char c : value) {
      if (c == '\n') {
        out += "\\n";
      } else {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
      }
    }
    out += '"';
  }
  return out;
}

void append_sample(std::string& out, const std::string& name, const std::string& labels, const std::string& extra,
                   double value) {
  out += name;
  if (!labels.empty() || !extra.empty()) {
    out += '{' + labels;
    if (!labels.empty() && !extra.empty()) out += ',';
    out += extra + '}';
  }
  out += ' ' + prometheus_number(value) + '\n';
}

void append_head(std::string& out, const std::string& name, const std::string& help, const char* kind) {
  out += "# HELP " + name + ' ' + help + "\n# TYPE " + name + ' ' + kind + '\n';
}

}  // namespace

void Histogram::observe(double value, uint64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(at)] += times;
  sum_ += value * static_cast<double>(times);
  count_ += times;
}

void Histogram::add(const std::vector<uint64_t>& counts, double sum) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    counts_[i] += counts.at(i);
    count_ += counts[i];
  }
  sum_ += sum;
}

Registry::Series& Registry::series(const std::string& name, const std::string& help, Kind kind, const Labels& labels) {
  auto family = std::find_if(families_.begin(), families_.end(), [&](const Family& f) { return f.name == name; });
  if (family == families_.end()) {
    families_.push_back({name, help, kind, {}});
    family = families_.end() - 1;
  }
  const std::string joined = join_labels(labels);
  for (Series& each : family->series) {
    if (each.labels == joined) return each;
  }
  Series& made = family->series.emplace_back();
  made.labels = joined;
  made.created = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return made;
}

Counter& Registry::counter(const std::string& name, const std::string& help, const Labels& labels) {
  Series& found = series(name, help, Kind::counter, labels);
  if (!found.counter) found.counter = std::make_unique<Counter>();
  return *found.counter;
}

Gauge& Registry::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  Series& found = series(name, help, Kind::gauge, labels);
  if (!found.gauge) found.gauge = std::make_unique<Gauge>();
  return *found.gauge;
}

Histogram& Registry::histogram(const std::string& name, const std::string& help, const Labels& labels,
                               std::vector<double> bounds) {
  Series& found = series(name, help, Kind::histogram, labels);
  if (!found.histogram) found.histogram = std::make_unique<Histogram>(std::move(bounds));
  return *found.histogram;
}

Histogram& Registry::summary(const std::string& name, const std::string& help, const Labels& labels) {
  Series& found = series(name, help, Kind::summary, labels);
  if (!found.histogram) found.histogram = std::make_unique<Histogram>(std::vector<double>());
  return *found.histogram;
}

void Registry::append(std::string& out, const Family& family) {
  switch (family.kind) {
    case Kind::counter:
      append_head(out, family.name + "_total", family.help, "counter");
      for (const Series& s : family.series)
        append_sample(out, family.name + "_total", s.labels, "", s.counter->value());
      break;
    case Kind::gauge:
      append_head(out, family.name, family.help, "gauge");
      for (const Series& s : family.series) append_sample(out, family.name, s.labels, "", s.gauge->value());
      return;
    case Kind::histogram:
    case Kind::summary:
      append_head(out, family.name, family.help, family.kind == Kind::histogram ? "histogram" : "summary");
      for (const Series& s : family.series) {
        const Histogram& h = *s.histogram;
        uint64_t below = 0;
        for (size_t i = 0; family.kind == Kind::histogram && i < h.counts().size(); ++i) {
          below += h.counts()[i];
          const std::string bound = i < h.bounds().size() ? prometheus_number(h.bounds()[i]) : "+Inf";
          append_sample(out, family.name + "_bucket", s.labels, "le=\"" + bound + '"', static_cast<double>(below));
        }
        append_sample(out, family.name + "_count", s.labels, "", static_cast<double>(h.count()));
        append_sample(out, family.name + "_sum", s.labels, "", h.sum());
      }
      break;
  }
  append_head(out, family.name + "_created", family.help, "gauge");
  for (const Series& s : family.series) append_sample(out, family.name + "_created", s.labels, "", s.created);
}

std::string Registry::text() const {
  std::string out;
  for (const Family& family : families_) append(out, family);
  return out;
}

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string text(buffer, end);
  if (text.find('.') == std::string::npos) text += ".0";
  // From a million on: mantissa and exponent.
  const bool negative = text[0] == '-';
  const size_t dot = text.find('.');
  const size_t whole = dot - (negative ? 1 : 0);
  if (whole <= 6) return text;
  std::string digits = text.substr(negative ? 1 : 0, whole) + text.substr(dot + 1);
  digits.insert(1, ".");
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  const size_t exponent = whole - 1;
  return (negative ? "-" : "") + digits + (exponent < 10 ? "e+0" : "e+") + std::to_string(exponent);
}

std::vector<double> buckets_1_2_5(int64_t most) {
  std::vector<double> out;
  for (int64_t decade = 1; decade <= most; decade *= 10) {
    for (const int64_t factor : {1, 2, 5}) {
      if (factor * decade <= most) out.push_back(static_cast<double>(factor * decade));
    }
  }
  return out;
}

}  // namespace gristmill::server
