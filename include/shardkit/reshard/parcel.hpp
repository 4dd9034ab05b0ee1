// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shardkit::detail {

/// Bytes that a rank sends to ranks of the same program.
class Parcel {
  public:
    template <class T>
    void add(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void add_text(std::string_view text) {
        add(std::uint64_t{text.size()});
        bytes_.append(text);
    }
    std::string take() && { return std::move(bytes_); }

  private:
    std::string bytes_;
};

/// Takes a Parcel's parts out, in the order in which they were added.
class OpenedParcel {
  public:
    explicit OpenedParcel(std::string_view bytes) noexcept : left_(bytes) {}

    template <class T>
    T next() {
        std::array<std::byte, sizeof(T)> bytes;
        std::memcpy(bytes.data(), take(sizeof(T)).data(), sizeof(T));
        return std::bit_cast<T>(bytes);
    }
    std::string next_text() { return std::string(take(static_cast<std::size_t>(next<std::uint64_t>()))); }

  private:
    std::string_view take(std::size_t count) {
        const std::string_view part = left_.substr(0, count);
        left_.remove_prefix(count);
        return part;
    }

    std::string_view left_;
};

}  // namespace shardkit::detail
