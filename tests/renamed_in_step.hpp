// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/manifest.hpp>

/// Checkpoints as another version would have written them: names in files and of files are replaced by others of the
/// same length, and digests are those of the result.
namespace renamed_in_step {

namespace sk = shardkit;

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
    if (from.size() != to.size()) { throw std::logic_error("expected a name of the same length"); }
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
    return text;
}
inline std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// Replaces `from` by `to` in the names of a step's files and in their headers.
inline void rename(const std::string& step, std::string_view from, std::string_view to) {
    const std::string manifest_path = step + "/manifest.json";
    sk::detail::Manifest manifest = sk::detail::ManifestReader::read(bytes_of(manifest_path));
    for (sk::detail::Manifest::File& file : manifest.files) {
        if (!file.name.ends_with(".safetensors")) { continue; }
        std::string bytes = bytes_of(step + "/" + file.name);
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data(), sizeof length);
        bytes = replaced(bytes.substr(0, sizeof length + length), from, to) + bytes.substr(sizeof length + length);
        file.header_crc32c = sk::detail::crc32c::of(std::as_bytes(std::span(bytes).first(sizeof length + length)));
        std::filesystem::remove(step + "/" + file.name);
        file.name = replaced(file.name, from, to);
        for (sk::detail::Manifest::Tensor& tensor : file.tensors) { tensor.name = replaced(tensor.name, from, to); }
        std::ofstream(step + "/" + file.name, std::ios::binary) << bytes;
    }
    std::ofstream(manifest_path, std::ios::binary) << sk::detail::manifest_text(manifest);
}

}  // namespace renamed_in_step
