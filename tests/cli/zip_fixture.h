#pragma once
#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace gristmill::cli {

/// Builds a ZIP archive in memory.
class ZipFixture {
 public:
  void add(const std::string& name, const std::string& contents, bool deflate) {
    const std::string packed = deflate ? deflated(contents) : contents;
    Entry entry{name,
                static_cast<uint16_t>(deflate ? 8 : 0),
                static_cast<uint32_t>(
                    crc32(0, reinterpret_cast<const Bytef*>(contents.data()), static_cast<uInt>(contents.size()))),
                static_cast<uint32_t>(packed.size()),
                static_cast<uint32_t>(contents.size()),
                static_cast<uint32_t>(bytes_.size())};
    u32(bytes_, 0x04034B50);
    fields(bytes_, entry);
    u16(bytes_, static_cast<uint16_t>(name.size()));
    u16(bytes_, 0);
    bytes_ += name + packed;
    entries_.push_back(entry);
  }

  std::string bytes(const std::string& comment = "") const {
    std::string directory;
    for (const Entry& entry : entries_) {
      u32(directory, 0x02014B50);
      u16(directory, 20);
      fields(directory, entry);
      u16(directory, static_cast<uint16_t>(entry.name.size()));
      for (int i = 0; i < 4; ++i) u16(directory, 0);
      u32(directory, 0);
      u32(directory, entry.offset);
      directory += entry.name;
    }
    std::string all = bytes_ + directory;
    u32(all, 0x06054B50);
    u16(all, 0);
    u16(all, 0);
    u16(all, static_cast<uint16_t>(entries_.size()));
    u16(all, static_cast<uint16_t>(entries_.size()));
    u32(all, static_cast<uint32_t>(directory.size()));
    u32(all, static_cast<uint32_t>(bytes_.size()));
    u16(all, static_cast<uint16_t>(comment.size()));
    return all + comment;
  }

 private:
  struct Entry {
    std::string name;
    uint16_t method;
    uint32_t crc, packed, unpacked, offset;
  };
  static void u16(std::string& out, uint16_t value) {
    out.push_back(static_cast<char>(value & 255));
    out.push_back(static_cast<char>(value >> 8));
  }
  static void u32(std::string& out, uint32_t value) {
    u16(out, static_cast<uint16_t>(value & 65535));
    u16(out, static_cast<uint16_t>(value >> 16));
  }
  static void fields(std::string& out, const Entry& entry) {
    u16(out, 20);
    u16(out, 0);
    u16(out, entry.method);
    u32(out, 0);
    u32(out, entry.crc);
    u32(out, entry.packed);
    u32(out, entry.unpacked);
  }
  static std::string deflated(const std::string& contents) {
    z_stream stream{};
    deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, static_cast<uLong>(contents.size())), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(contents.data()));
    stream.avail_in = static_cast<uInt>(contents.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }

  std::vector<Entry> entries_;
  std::string bytes_;
};

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace gristmill::cli
