// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/layout/tensor_shape.hpp>

namespace shardkit {

namespace detail {
/// Remembers which generation of a buffer a view was made for.
class GenerationCheck {
  public:
    explicit GenerationCheck(const std::uint64_t& current) noexcept : current_(&current), made_for_(current) {}
    void operator()() const {
        if (*current_ != made_for_) { throw UsageError("view used after the end of its window"); }
    }

  private:
    const std::uint64_t* current_;
    std::uint64_t made_for_;
};
/// The unchecked build's: empty.
struct NoCheck {
    explicit NoCheck(const std::uint64_t& /*current*/) noexcept {}
    void operator()() const noexcept {}
};
}  // namespace detail

inline namespace SHARDKIT_BUILD {

/// A parameter's (or gradient's) elements as a row-major tensor; refers to memory of a window or handle and
/// must not outlive it. Converts to std::span<T> and to T*, so that functions on plain memory take it.
template <class T>
class TensorView {
  public:
    TensorView(T* data, const TensorShape& shape, const std::uint64_t& generation) noexcept
        : data_(data), shape_(&shape), check_(generation) {}

    T* data() const {
        check_();
        return data_;
    }
    std::size_t size() const noexcept { return shape_->numel(); }
    const TensorShape& shape() const noexcept { return *shape_; }
    std::size_t extent(std::size_t dimension) const noexcept { return shape_->extents[dimension]; }

    T* begin() const { return data(); }
    T* end() const { return data() + size(); }
    template <std::integral I>
    T& operator[](I i) const {
        return data()[i];
    }
    operator T*() const { return data(); }  // NOLINT(google-explicit-constructor): plain memory is the point

  private:
    using Check = std::conditional_t<checked, detail::GenerationCheck, detail::NoCheck>;

    T* data_;
    const TensorShape* shape_;
    [[no_unique_address]] Check check_;
};

}  // namespace SHARDKIT_BUILD

}  // namespace shardkit

template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<shardkit::TensorView<T>> = true;
