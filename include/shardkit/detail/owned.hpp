// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

namespace shardkit::detail {

/// A std::unique_ptr for headers of the face: <memory> would add a quarter to what a file of the compiled form takes
/// to compile, and g++ makes about thirty functions of a std::unique_ptr of one more type, without optimization.
/// `ends`: the function that ends an object which was not made by new.
template <class T, auto ends = nullptr>
class Owned {
  public:
    using Element = std::remove_extent_t<T>;

    [[gnu::always_inline]] Owned() noexcept {}  // NOLINT(modernize-use-equals-default): no function of its own
    [[gnu::always_inline]] explicit Owned(Element* made) noexcept : object_(made) {}
    [[gnu::always_inline]] Owned(Owned&& other) noexcept : object_(other.release()) {}
    [[gnu::always_inline]] Owned& operator=(Owned&& other) noexcept {
        Element* const taken = other.release();
        end();
        object_ = taken;
        return *this;
    }
    [[gnu::always_inline]] ~Owned() { end(); }

    [[gnu::always_inline]] Element* get() const noexcept { return object_; }
    [[gnu::always_inline]] Element& operator*() const noexcept { return *object_; }
    [[gnu::always_inline]] Element* operator->() const noexcept { return object_; }
    [[gnu::always_inline]] Element& operator[](std::size_t i) const noexcept { return object_[i]; }
    [[gnu::always_inline]] explicit operator bool() const noexcept { return object_ != nullptr; }
    [[gnu::always_inline]] Element* release() noexcept {
        Element* const released = object_;
        object_ = nullptr;
        return released;
    }

  private:
    [[gnu::always_inline]] void end() noexcept {
        if constexpr (!std::is_null_pointer_v<decltype(ends)>) {
            if (object_ != nullptr) { ends(*object_); }
        } else if constexpr (std::is_array_v<T>) {
            delete[] object_;
        } else {
            delete object_;
        }
    }

    Element* object_ = nullptr;
};

}  // namespace shardkit::detail
