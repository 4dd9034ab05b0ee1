// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

namespace shardkit::detail {

/// A std::optional that costs a compiler little: without optimization, g++ makes up to fifty functions of a
/// std::optional of one more type, and none of this. It cannot be constexpr.
template <class T>
class Maybe {
  public:
    [[gnu::always_inline]] Maybe() noexcept {}  // NOLINT(modernize-use-equals-default): no function of its own
    [[gnu::always_inline]] Maybe(T value) {     // NOLINT(google-explicit-constructor)
        emplace(static_cast<T&&>(value));
    }
    [[gnu::always_inline]] Maybe(const Maybe& other) {
        if (other.has_) { emplace(*other); }
    }
    [[gnu::always_inline]] Maybe(Maybe&& other) noexcept {
        if (other.has_) { emplace(static_cast<T&&>(*other)); }
    }
    [[gnu::always_inline]] Maybe& operator=(Maybe other) noexcept {
        reset();
        if (other.has_) { emplace(static_cast<T&&>(*other)); }
        return *this;
    }
    [[gnu::always_inline]] ~Maybe() { reset(); }

    [[gnu::always_inline]] explicit operator bool() const noexcept { return has_; }
    [[gnu::always_inline]] T& operator*() noexcept { return *std::launder(reinterpret_cast<T*>(memory_)); }
    [[gnu::always_inline]] const T& operator*() const noexcept {
        return *std::launder(reinterpret_cast<const T*>(memory_));
    }
    [[gnu::always_inline]] T* operator->() noexcept { return &**this; }
    [[gnu::always_inline]] const T* operator->() const noexcept { return &**this; }
    template <class... Values>
    [[gnu::always_inline]] T& emplace(Values&&... values) {
        reset();
        T* const made = ::new (static_cast<void*>(memory_)) T(static_cast<Values&&>(values)...);
        has_ = true;
        return *made;
    }
    /// Returns what it has, and has nothing then.
    [[gnu::always_inline]] Maybe take() noexcept {
        Maybe taken(static_cast<Maybe&&>(*this));
        reset();
        return taken;
    }
    [[gnu::always_inline]] void reset() noexcept {
        if (!has_) { return; }
        has_ = false;
        (**this).~T();
    }

  private:
    alignas(T) std::byte memory_[sizeof(T)];
    bool has_ = false;
};

}  // namespace shardkit::detail
