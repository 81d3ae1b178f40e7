#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "base/error.h"
#include "server/http/listener.h"

namespace gristmill::server {
namespace {

/// "socket:[inode]" of every socket in `table` (/proc/net/tcp or tcp6) that listens on `port`.
void add_listening(const char* table, uint16_t port, std::set<std::string>& found) {
  std::ifstream in(table);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    // sl local_address rem_address st tx:rx tr:when retransmits uid timeout inode ... (proc(5))
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    const size_t colon = local.rfind(':');
    if (!fields || state != "0A" || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port) found.insert("socket:[" + inode + "]");
  }
}

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

bool holds_any(const std::string& folder, const std::set<std::string>& links) {
  const Folder open(::opendir(folder.c_str()), ::closedir);
  if (!open) return false;
  while (const dirent* entry = ::readdir(open.get())) {
    char target[64];
    const ssize_t length = ::readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target);
    if (length > 0 && links.contains(std::string(target, static_cast<size_t>(length)))) return true;
  }
  return false;
}

}  // namespace

std::string port_owner(uint16_t port) {
  std::set<std::string> links;
  add_listening("/proc/net/tcp", port, links);
  add_listening("/proc/net/tcp6", port, links);
  const Folder processes(links.empty() ? nullptr : ::opendir("/proc"), ::closedir);
  if (!processes) return {};
  while (const dirent* entry = ::readdir(processes.get())) {
    const std::string process = entry->d_name;
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_any("/proc/" + process + "/fd", links)) continue;
    std::string name;
    std::ifstream command("/proc/" + process + "/comm");
    std::getline(command, name);
    return cat(name.empty() ? "a program" : name, " (process ", process, ")");
  }
  return {};
}

}  // namespace gristmill::server
