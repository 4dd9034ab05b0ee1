// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace shardkit::detail {

template <class T>
void end_counted(void* object) noexcept {
    delete static_cast<T*>(object);
}

/// A std::shared_ptr that costs a compiler little: what counts is one type for all objects, where g++ without
/// optimization makes about fifty functions of a std::shared_ptr of one more type.
template <class Object>
class Counted {
  public:
    using Made = std::remove_const_t<Object>;

    [[gnu::always_inline]] Counted() noexcept {}  // NOLINT(modernize-use-equals-default): no function of its own
    /// Takes an object that `end(void*)` ends.
    template <class End>
    [[gnu::always_inline]] Counted(Made* object, End end) : object_(static_cast<void*>(object), std::move(end)) {}
    /// Refers to a part of what `whole` counts.
    template <class Whole>
    [[gnu::always_inline]] Counted(const Counted<Whole>& whole, Made* part) noexcept
        : object_(whole.counting(), part) {}
    [[gnu::always_inline]] Counted(const Counted& other) noexcept : object_(other.object_) {}
    [[gnu::always_inline]] Counted(Counted&& other) noexcept : object_(std::move(other.object_)) {}
    [[gnu::always_inline]] Counted& operator=(Counted other) noexcept {
        object_.swap(other.object_);
        return *this;
    }
    [[gnu::always_inline]] ~Counted() {}  // NOLINT(modernize-use-equals-default): as above

    [[gnu::always_inline]] Object* get() const noexcept { return static_cast<Object*>(object_.get()); }
    [[gnu::always_inline]] Object& operator*() const noexcept { return *get(); }
    [[gnu::always_inline]] Object* operator->() const noexcept { return get(); }
    [[gnu::always_inline]] explicit operator bool() const noexcept { return get() != nullptr; }
    [[gnu::always_inline]] friend bool operator==(const Counted& one, std::nullptr_t) noexcept { return !one; }
    /// Returns the pointer that counts, which may have weak copies.
    [[gnu::always_inline]] const std::shared_ptr<void>& counting() const noexcept { return object_; }
    [[gnu::always_inline]] bool alone() const noexcept { return object_.use_count() == 1; }

  private:
    std::shared_ptr<void> object_;
};

/// Makes an object that is shared, like std::make_shared.
template <class Object, class... Values>
[[gnu::always_inline]] inline Counted<Object> make_counted(Values&&... values) {
    using Made = std::remove_const_t<Object>;
    return {new Made(static_cast<Values&&>(values)...), &end_counted<Made>};
}

}  // namespace shardkit::detail
