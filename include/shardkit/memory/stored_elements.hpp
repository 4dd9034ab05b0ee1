// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Elements in an engine's memory, whose type is a value. Who knows the type converts them to a span of it. In two
/// words, so that functions return it in registers.
class StoredElements {
  public:
    StoredElements() noexcept = default;
    StoredElements(void* data, std::size_t size, ElementType type) noexcept
        : data_(data), size_(size & most), type_(type) {}
    template <class Byte>
    StoredElements(std::span<Byte> bytes, ElementType type) noexcept
        : StoredElements(bytes.data(), bytes.size() / size_of(type), type) {}
    template <Element T>
    StoredElements(std::span<T> elements) noexcept  // NOLINT(google-explicit-constructor)
        : StoredElements(elements.data(), elements.size(), element_type_of<T>) {}

    void* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    ElementType type() const noexcept { return type_; }
    bool empty() const noexcept { return size_ == 0; }
    std::span<const std::byte> bytes() const noexcept {
        return {static_cast<const std::byte*>(data_), size_ * size_of(type_)};
    }
    /// @pre begin + count <= size()
    StoredElements subspan(std::size_t begin, std::size_t count) const noexcept {
        return {static_cast<std::byte*>(data_) + begin * size_of(type_), count, type_};
    }

    template <class T>
    operator std::span<T>() const noexcept {  // NOLINT(google-explicit-constructor)
        constexpr ElementType wanted = element_type_of<std::remove_const_t<T>>;
        if constexpr (checked) {
            if (type_ != wanted) { end_program("elements of ", name(type_), " taken for ", name(wanted)); }
        }
        return {static_cast<T*>(data_), size_};
    }

  private:
    static constexpr std::size_t most = (std::size_t{1} << 56U) - 1;

    void* data_ = nullptr;
    std::size_t size_ : 56 = 0;
    ElementType type_ : 8 = ElementType::uint8;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
