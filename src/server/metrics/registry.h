#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gristmill::server {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void add(double by = 1) { value_ += by; }
  /// For totals that something else counts.
  void set(double total) { value_ = total; }
  double value() const { return value_; }

 private:
  double value_ = 0;
};

class Gauge {
 public:
  void set(double value) { value_ = value; }
  double value() const { return value_; }

 private:
  double value_ = 0;
};

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void observe(double value, uint64_t times = 1);
  /// Adds values that were sorted elsewhere: `counts` has one more than bounds(), `sum` is of them all.
  void add(const std::vector<uint64_t>& counts, double sum);
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  ///< not cumulative; the last is above all bounds
  double sum() const { return sum_; }
  uint64_t count() const { return count_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

/// Named series in the order they were made, printed as Prometheus text format 0.0.4 the way its Python client prints
/// them (counters end in _total and have a _created series). References stay valid. One thread.
class Registry {
 public:
  /// Series of one name share help and kind. Counter names are given without "_total".
  Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, const Labels& labels,
                       std::vector<double> bounds);
  /// A histogram without buckets.
  Histogram& summary(const std::string& name, const std::string& help, const Labels& labels = {});
  std::string text() const;

 private:
  enum class Kind : uint8_t { counter, gauge, histogram, summary };
  struct Series {
    std::string labels;  ///< `a="b",c="d"`, escaped
    double created = 0;
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<Histogram> histogram;
  };
  struct Family {
    std::string name, help;
    Kind kind;
    std::deque<Series> series;
  };
  Series& series(const std::string& name, const std::string& help, Kind kind, const Labels& labels);
  static void append(std::string& out, const Family& family);

  std::deque<Family> families_;
};

/// A number as Prometheus' Python client writes it: "1.0", "0.25", "1e+07", "+Inf".
std::string prometheus_number(double value);
/// 1, 2, 5, 10, 20, ... up to `most`.
std::vector<double> buckets_1_2_5(int64_t most);

}  // namespace gristmill::server
