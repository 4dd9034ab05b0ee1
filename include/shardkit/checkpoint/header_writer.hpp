// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit::detail {

/// The alignment of tensors in a file, and of the ranks' pieces of a tensor: one page.
inline constexpr std::uint64_t page_bytes = 4096;

/// Writes the header of a safetensors file: its length, then the text. It ends at a page boundary.
class HeaderWriter {
  public:
    /// Adds a tensor. @pre tensors are added in the order of their bytes
    void tensor(std::string_view name, ElementType type, const TensorShape& shape, std::uint64_t begin,
                std::uint64_t bytes) {
        text_ +=
            concat(comma_, json_string(name), ":{\"dtype\":\"", safetensors::name(dtype_of(type)), "\",\"shape\":[");
        for (std::size_t d = 0; d < shape.rank; ++d) { text_ += concat(d == 0 ? "" : ",", shape.extents[d]); }
        append(text_, "],\"data_offsets\":[", begin, ",", begin + bytes, "]}");
        comma_ = ",";
    }
    void metadata(const std::vector<std::pair<std::string, std::string>>& pairs) {
        text_ += "\"__metadata__\":{";
        std::string_view comma;
        for (const auto& [key, value] : pairs) {
            append(text_, comma, json_string(key), ":", json_string(value));
            comma = ",";
        }
        text_ += "}";
        comma_ = ",";
    }
    /// Returns the header. @throws JsonError when the names make no valid file
    std::string finish(std::uint64_t data_bytes) {
        text_ += "}";
        const std::uint64_t behind = (8 + text_.size() + page_bytes - 1) / page_bytes * page_bytes;
        text_.resize(behind - 8, ' ');
        if (text_.size() > safetensors::max_header_bytes) {
            throw JsonError{text_.size(), "a header of more bytes than readers take"};
        }
        safetensors::detail::parse_header(text_, data_bytes);
        const std::uint64_t length = text_.size();
        std::string whole(sizeof length, '\0');
        std::memcpy(whole.data(), &length, sizeof length);
        return whole + text_;
    }

  private:
    std::string text_ = "{";
    std::string_view comma_;
};

}  // namespace shardkit::detail
