#include "weights/safetensors_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "weights/mapped_file.h"
#include "weights/safetensors.h"

namespace gristmill::weights {
namespace {

constexpr std::string_view kIndexEnding = ".safetensors.index.json", kEnding = ".safetensors";

/// The names of the folder's files that end like that.
std::vector<std::string> files_ending(const std::string& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != std::filesystem::end(it);
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.ends_with(ending)) names.push_back(std::move(name));
  }
  if (error) throw Error(cat(folder, ": cannot be read: ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

/// Tensor -> shard, from an index file.
std::map<std::string, std::string> read_index(const std::string& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const Json index = parse_json(path, text);
  const Json* const map = index.find("weight_map");
  if (map == nullptr || map->kind != Json::Kind::object)
    throw Error(cat(path, ": key \"weight_map\": must be an object of tensors and their files"));
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map->object) {
    if (shard.kind != Json::Kind::string || shard.string.empty() ||
        shard.string.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos || shard.string == "..")
      throw Error(cat(path, ": tensor ", quoted(tensor), ": must name a file of this folder"));
    shards.emplace(tensor, shard.string);
  }
  if (shards.empty()) throw Error(cat(path, ": key \"weight_map\": is empty"));
  return shards;
}

/// A few of the names, and how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += cat(i == 0 ? "" : ", ", quoted(names[i]));
  if (names.size() > kShown) text += cat(" and ", names.size() - kShown, " more");
  return text;
}

}  // namespace

struct SafetensorsFolder::Impl {
  std::string folder;
  std::vector<std::shared_ptr<const SafetensorsFile>> files;
  std::map<std::string, size_t, std::less<>> file_of;  ///< tensor -> index into files

  void open_single() {
    const std::vector<std::string> names = files_ending(folder, kEnding);
    if (names.empty())
      throw Error(cat(folder, ": holds no *.safetensors file; other weight formats of Hugging Face are not supported"));
    const bool plain = std::find(names.begin(), names.end(), "model.safetensors") != names.end();
    if (names.size() > 1 && !plain)
      throw Error(cat(folder, ": several *.safetensors files but no *", kIndexEnding, " that lists them"));
    files.push_back(SafetensorsFile::open(cat(folder, "/", plain ? "model.safetensors" : names[0])));
    for (const std::string& name : files[0]->names()) file_of.emplace(name, 0);
  }

  void open_shards(const std::string& index_path) {
    const std::map<std::string, std::string> index = read_index(index_path);
    std::map<std::string, size_t> opened;
    std::vector<std::string> missing, surplus;
    for (const auto& [tensor, shard] : index) {
      auto [at, fresh] = opened.emplace(shard, files.size());
      if (fresh) {
        const std::string path = cat(folder, "/", shard);
        if (!std::filesystem::exists(path))
          throw Error(cat(index_path, ": names the file ", quoted(shard), ", which is not in the folder"));
        files.push_back(SafetensorsFile::open(path));
      }
      if (!files[at->second]->contains(tensor)) missing.push_back(tensor);
      file_of.emplace(tensor, at->second);
    }
    for (size_t i = 0; i < files.size(); ++i)
      for (const std::string& name : files[i]->names())
        if (const auto at = file_of.find(name); at == file_of.end() || at->second != i) surplus.push_back(name);
    if (!missing.empty()) throw Error(cat(index_path, ": its files lack the tensors ", listed(missing)));
    if (!surplus.empty()) throw Error(cat(index_path, ": does not list tensors of its files: ", listed(surplus)));
  }
};

SafetensorsFolder::SafetensorsFolder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFolder::~SafetensorsFolder() = default;

std::shared_ptr<const SafetensorsFolder> SafetensorsFolder::open(const std::string& folder) {
  auto impl = std::make_unique<Impl>();
  impl->folder = folder;
  while (impl->folder.size() > 1 && impl->folder.back() == '/') impl->folder.pop_back();
  const std::vector<std::string> indexes = files_ending(impl->folder, kIndexEnding);
  if (indexes.empty()) {
    impl->open_single();
  } else {
    const bool plain = std::find(indexes.begin(), indexes.end(), "model.safetensors.index.json") != indexes.end();
    if (indexes.size() > 1 && !plain)
      throw Error(cat(impl->folder, ": several indexes (", listed(indexes), "); leave one of them"));
    impl->open_shards(cat(impl->folder, "/", plain ? "model.safetensors.index.json" : indexes[0]));
  }
  return std::shared_ptr<const SafetensorsFolder>(new SafetensorsFolder(std::move(impl)));
}

std::string SafetensorsFolder::path() const {
  return impl_->folder;
}

bool SafetensorsFolder::contains(std::string_view name) const {
  return impl_->file_of.contains(name);
}

TensorView SafetensorsFolder::tensor(std::string_view name) const {
  const auto at = impl_->file_of.find(name);
  if (at == impl_->file_of.end()) throw Error(cat(path(), ": tensor ", quoted(name), ": is missing"));
  return impl_->files[at->second]->tensor(name);
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : impl_->file_of) names.push_back(name);
  return names;
}

std::string SafetensorsFolder::identity() const {
  std::string all;
  for (const auto& file : impl_->files) all += file->identity();
  return all;
}

void SafetensorsFolder::drop_pages(std::span<const std::byte> bytes) const {
  // Each file drops only what lies inside its own mapping.
  for (const auto& file : impl_->files) file->drop_pages(bytes);
}

}  // namespace gristmill::weights
