#include "model/model.h"

#include <string_view>

#include "base/error.h"
#include "model/architectures.h"
#include "weights/gguf.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

/// general.architecture of a GGUF file -> its builder.
struct Architecture {
  std::string_view name;
  Model (*load)(const std::shared_ptr<const weights::GgufFile>& file, const BuildOptions& options);
};
constexpr Architecture kArchitectures[] = {{"llama", load_llama}};

}  // namespace

Model load_model(const std::string& path, const BuildOptions& options) {
  const std::shared_ptr<const weights::GgufFile> file = weights::GgufFile::open(path);
  const std::string_view name = file->string("general.architecture");
  std::string supported;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture.load(file, options);
    supported += cat(supported.empty() ? "" : ", ", architecture.name);
  }
  throw Error(cat(path, ": architecture ", weights::quoted(name), " is not supported (supported: ", supported, ")"));
}

}  // namespace gristmill::model
