#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "server/metrics/serving_metrics.h"

namespace gristmill::server {
namespace {

double count_entries(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder), ::closedir);
  double n = 0;
  while (open && ::readdir(open.get())) ++n;
  return n > 3 ? n - 3 : 0;  // ".", ".." and the folder's own descriptor
}

/// Fields of /proc/self/stat after the command, whose name may hold anything; the first is field 3 (proc(5)).
std::vector<std::string> stat_fields() {
  std::ifstream in("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t end = text.rfind(')');
  std::istringstream rest(end == std::string::npos ? std::string() : text.substr(end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

}  // namespace

HttpMetrics::HttpMetrics(Registry& registry) : registry_(registry) {
  fine_duration_ =
      &registry.histogram("http_request_duration_highr_seconds", "Latency of all requests, many buckets.", {},
                          {.01, .025, .05, .075, .1, .25, .5, .75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60});
  virtual_bytes_ = &registry.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.");
  resident_bytes_ = &registry.gauge("process_resident_memory_bytes", "Resident memory size in bytes.");
  start_time_ = &registry.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
  cpu_seconds_ = &registry.counter("process_cpu_seconds", "Total user and system CPU time spent in seconds.");
  open_files_ = &registry.gauge("process_open_fds", "Number of open file descriptors.");
  max_files_ = &registry.gauge("process_max_fds", "Maximum number of open file descriptors.");
}

void HttpMetrics::answered(const std::string& handler, const std::string& method, int status, uint64_t request_bytes,
                           uint64_t response_bytes, double seconds) {
  const std::string group = std::to_string(status / 100) + "xx";
  registry_
      .counter("http_requests", "Total number of requests by method, status and handler.",
               {{"handler", handler}, {"method", method}, {"status", group}})
      .add();
  const Labels by_handler = {{"handler", handler}};
  registry_.summary("http_request_size_bytes", "Content length of incoming requests by handler.", by_handler)
      .observe(static_cast<double>(request_bytes));
  registry_.summary("http_response_size_bytes", "Content length of outgoing responses by handler.", by_handler)
      .observe(static_cast<double>(response_bytes));
  registry_
      .histogram("http_request_duration_seconds", "Latency by handler.", {{"handler", handler}, {"method", method}},
                 {.1, .5, 1})
      .observe(seconds);
  fine_duration_->observe(seconds);
}

void HttpMetrics::refresh_process() {
  const std::vector<std::string> fields = stat_fields();
  if (fields.size() < 22) return;
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  cpu_seconds_->set((std::stod(fields[11]) + std::stod(fields[12])) / ticks);
  virtual_bytes_->set(std::stod(fields[20]));
  resident_bytes_->set(std::stod(fields[21]) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  std::ifstream uptime_file("/proc/uptime");
  double uptime = 0;
  if (uptime_file >> uptime) {
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    start_time_->set(now - uptime + std::stod(fields[19]) / ticks);
  }
  open_files_->set(count_entries("/proc/self/fd"));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) max_files_->set(static_cast<double>(files.rlim_cur));
}

}  // namespace gristmill::server
