// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// The alignment of tensors in a file, and of the ranks' pieces of a tensor: one page.
inline constexpr std::uint64_t page_bytes = 4096;

/// Returns the header of a safetensors file: its length, then the text. It ends at a page boundary.
/// @pre the tensors are in the order of their bytes   @throws JsonError when the names make no valid file
inline std::string header_text(const std::vector<std::pair<std::string, std::string>>& metadata,
                               const std::vector<safetensors::Tensor>& tensors) {
    std::string text = "{\"__metadata__\":{";
    std::string_view comma;
    for (const auto& [key, value] : metadata) {
        append(text, comma, json_string(key), ":", json_string(value));
        comma = ",";
    }
    text += "}";
    for (const safetensors::Tensor& tensor : tensors) {
        append(text, ",", json_string(tensor.name), ":{\"dtype\":\"", safetensors::name(tensor.type),
               "\",\"shape\":[");
        for (std::size_t d = 0; d < tensor.shape.rank; ++d) {
            append(text, d == 0 ? "" : ",", tensor.shape.extents[d]);
        }
        append(text, "],\"data_offsets\":[", tensor.bytes.begin, ",", tensor.bytes.end, "]}");
    }
    text += "}";
    const std::uint64_t behind = (8 + text.size() + page_bytes - 1) / page_bytes * page_bytes;
    text.resize(behind - 8, ' ');
    if (text.size() > safetensors::max_header_bytes) {
        throw JsonError{text.size(), "a header of more bytes than readers take"};
    }
    safetensors::detail::parse_header(text, tensors.empty() ? 0 : tensors.back().bytes.end);
    const std::uint64_t length = text.size();
    text.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
    return text;
}

}  // namespace shardkit::detail
