// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

[[noreturn]] inline void throw_damaged(const std::string& path, std::string_view what, SourceLocation where) {
    throw_file_error(path, where, what, " has another digest (CRC-32C) than the manifest says: damaged");
}

/// Reads the header of a safetensors file, and checks it against the file's size and the rules of the format.
/// `digest` is what its bytes must have; null if there is none.
/// @throws FileError that says what is wrong
inline safetensors::Header read_header(const OpenFile& file, const std::uint32_t* digest, SourceLocation where) {
    static_assert(std::endian::native == std::endian::little, "the format is little-endian, as are its readers here");
    const auto refuse = [&](std::string_view what) { throw FileError(file.path(), what, where); };
    std::uint64_t length = 0;
    if (file.size() < sizeof length) {
        refuse(concat("no safetensors file: ", file.size(), " bytes, expected at least 8"));
    }
    file.read(0, std::as_writable_bytes(std::span(&length, 1)), where);
    const std::uint64_t behind = file.size() - sizeof length;
    if (length > safetensors::max_header_bytes || length > behind) {
        // Eight bytes of text make a number that is larger than any file.
        char first = 0;
        file.read(0, std::as_writable_bytes(std::span(&first, 1)), where);
        if (first == '{') { refuse("no safetensors file: JSON, as an index of several is: `load_model` takes one"); }
        refuse(concat("no safetensors file: a header of ", length, " bytes, expected at most ",
                      std::min(behind, safetensors::max_header_bytes)));
    }
    std::string text(sizeof length + length, '\0');
    file.read(0, std::as_writable_bytes(std::span(text)), where);
    if (digest != nullptr && crc32c::of(std::as_bytes(std::span(text))) != *digest) {
        throw_damaged(file.path(), "its header", where);
    }
    try {
        safetensors::Header header =
            safetensors::detail::parse_header(std::string_view(text).substr(sizeof length), behind - length);
        header.data_begin = text.size();
        return header;
    } catch (const JsonError& error) {
        throw_file_error(file.path(), where, "not a valid safetensors file: byte ", error.at,
                         " of its header: ", error.what);
    }
}

}  // namespace shardkit::detail
