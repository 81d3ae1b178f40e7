#include "server/served_model.h"

#include <algorithm>

namespace gristmill::server {

bool ServedModel::answers_to(const std::string& name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace gristmill::server
